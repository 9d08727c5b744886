"""`leveret ctl`: inspect and change a running broker, or the files of a stopped one."""
