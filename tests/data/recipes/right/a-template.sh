llama-server -m m.gguf --jinja --chat-template-file ./templates/qwen.jinja
