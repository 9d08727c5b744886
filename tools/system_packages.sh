#!/usr/bin/env bash
# Installs what Python packages cannot bring, and only what is missing, of the groups that are named:
#
#   tools/system_packages.sh PYTHON venv       Python's module venv
#   tools/system_packages.sh PYTHON build      venv, C compiler, Python's headers
#   tools/system_packages.sh PYTHON clients    node, npm, amqp-tools: clients that the tests use
#   tools/system_packages.sh PYTHON browser    Chromium without windows: it looks at the page
#   tools/system_packages.sh PYTHON jobs       PostgreSQL and Redis: a store of jobs
#   tools/system_packages.sh PYTHON spark      Java: it runs Spark
#   tools/system_packages.sh PYTHON guard      valgrind: it counts instructions
#   tools/system_packages.sh PYTHON rabbitmq   the broker that compat and bench compare with
#
# As root on Debian it uses apt-get; otherwise it says in one sentence what to install and goes on,
# because everything else works without: no compiler means the pure Python form.
set -euo pipefail

python=$1
groups=("${@:2}")
missing=()

need() { # need PROGRAM PACKAGE: PACKAGE is missing where PROGRAM is not found
    PATH="$PATH:/usr/sbin:/usr/lib/rabbitmq/bin:/usr/lib/postgresql/15/bin" command -v "$1" >/dev/null || missing+=("$2")
}

for group in "${groups[@]}"; do
    case $group in
    venv | build)
        release=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
        "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=("$release-venv")
        if [[ $group == build && -z ${LEVERET_PURE:-} ]]; then
            need "${CC:-gcc}" gcc
            need "${CC:-gcc}" libc6-dev
            "$python" -c 'import pathlib, sys, sysconfig
sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' ||
                missing+=("$release-dev")
        fi
        ;;
    clients)
        need node nodejs
        need npm npm
        need amqp-publish amqp-tools
        ;;
    browser)
        command -v chromium >/dev/null || need chromium-headless-shell chromium-headless-shell
        ;;
    jobs)
        need postgres postgresql
        need redis-server redis-server
        ;;
    spark)
        need java openjdk-17-jre-headless
        ;;
    guard)
        need valgrind valgrind
        ;;
    rabbitmq)
        need rabbitmq-server rabbitmq-server
        ;;
    *)
        echo "tools/system_packages.sh: no such group: $group" >&2
        exit 2
        ;;
    esac
done

[[ ${#missing[@]} -eq 0 ]] && exit 0

if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
    echo "Not installed and not root: install ${missing[*]} (Debian's names) for the full set: ${groups[*]}."
    exit 0
fi

# No daemon may start on the default ports by being installed.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi

echo "Installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
quiet=(-qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120)
log=$(mktemp)
install() { apt-get "${quiet[@]}" install -y --no-install-recommends "$@" >>"$log" 2>&1; }

apt-get "${quiet[@]}" update >"$log" 2>&1 || true # what is known already may do
if ! install "${missing[@]}"; then
    for package in "${missing[@]}"; do # one that cannot be had must not keep the others away
        if ! install "$package"; then
            tail -n 20 "$log" >&2
            echo "Could not install $package; going on without." >&2
        fi
    done
fi
rm -f "$log"

# rabbitmq-server's set-up can leave /dev/null owned by its user, which breaks everyone else.
if [[ -c /dev/null && $(stat -c '%a %u' /dev/null) != "666 0" ]]; then
    chown root:root /dev/null
    chmod 0666 /dev/null
fi
