#!/bin/sh
vllm serve openai/gpt-oss-20b --host 127.0.0.1 --tool-call-parser openai --enable-auto-tool-choice
