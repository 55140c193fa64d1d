llama-server --version && llama-server --list-devices
