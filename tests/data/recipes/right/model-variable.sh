#!/bin/sh
MODEL=/srv/a.gguf; llama-server -m "$MODEL" -c 8192
