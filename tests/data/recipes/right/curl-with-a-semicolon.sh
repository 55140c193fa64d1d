#!/bin/sh
curl -X POST http://localhost:8080/completion -d '{"prompt": "a;b", "n_predict": 128}'
