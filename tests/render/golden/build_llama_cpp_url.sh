<<< build_llama_cpp_cpu.sh: #!/bin/sh
>>> archive=$cache/sources/abababababababababababababababababababababababababababababababab
if [ ! -f "$archive" ]; then
    fetch curl -q -gfsSL --connect-timeout 30 --speed-limit 512 --speed-time 60 --max-time 3600 \
        --retry 3 --retry-max-time 3600 -o "$archive.$$" https://mirror.lan/llama.tar.gz ||
        fail "cannot fetch "https://mirror.lan/llama.tar.gz": $(tail -n 1 "$work/fetch.log")"
<<< build_ik_cuda_overlay_url.sh:     mv "$archive.$$" "$archive"
>>>     rm -f "$archive"
<<< build_llama_cpp_cpu.sh:     fail llama.tar.gz" has sha256 $have, the inventory says abababababababababababababababababababababababababababababababab"
>>> mv out/manifest.json.part out/manifest.json
