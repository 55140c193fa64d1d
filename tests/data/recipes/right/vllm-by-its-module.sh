python -m vllm.entrypoints.openai.api_server --model a/b --host 127.0.0.1 --dtype bfloat16
