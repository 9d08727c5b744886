"""The jobs service, its client and its worker, as programs use them."""
