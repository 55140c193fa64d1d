#!/bin/bash
# writes a unit, and starts it
cat > /etc/systemd/system/llama.service <<EOF
[Service]
ExecStart=/opt/llama.cpp/build/bin/llama-server -m /opt/m.gguf --flash-attn --port 8080
EOF
systemctl enable --now llama
