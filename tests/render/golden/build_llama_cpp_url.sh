<<< build_llama_cpp_cpu.sh: #!/bin/sh
>>> archive=$cache/sources/abababababababababababababababababababababababababababababababab
if [ ! -f "$archive" ]; then
    curl -gfsSL --retry 3 -o "$archive.$$" https://mirror.lan/llama.tar.gz 2>"$work/fetch.log" ||
        fail "cannot fetch "https://mirror.lan/llama.tar.gz": $(tail -n 1 "$work/fetch.log")"
<<< build_ik_cuda_overlay_url.sh:     mv "$archive.$$" "$archive"
>>>     rm -f "$archive"
<<< build_llama_cpp_cpu.sh:     fail llama.tar.gz" has sha256 $have, the inventory says abababababababababababababababababababababababababababababababab"
>>> mv out/manifest.json.part out/manifest.json
