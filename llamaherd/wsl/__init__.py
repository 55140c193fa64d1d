"""WSL 2 around a rig: the user's `.wslconfig` and /etc/wsl.conf with our keys in them, and what Windows is to run."""
