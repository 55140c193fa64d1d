# Brings the files of one model into the store: each into a .part, which gets its name once its hash is right.
# The manifest is written last and says of every file that it was whole: size, time, hash, name.
store=/var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc
mkdir -p "$store" /var/lib/llamaherd/incoming
exec 9>"$store/.lock"
flock -n 9 || { echo "another run fetches 35b: waiting for it"; flock 9; }
umask 022

# $1 name, $2 sha256: whether the file is there and whole
whole() { [ -f "$store/$1" ] && [ "$(sha256sum <"$store/$1" | cut -d ' ' -f 1)" = "$2" ]; }

size() { stat -c %s "$1" 2>/dev/null || echo 0; }

# $1 part, $2 name, $3 sha256
admit() {
    have=$(sha256sum <"$1" | cut -d ' ' -f 1)
    if [ "$have" != "$3" ]; then
        rm -f "$1"
        echo "$2 arrived with sha256 $have, but $3 was expected. Nothing of it was kept." >&2
        exit 1
    fi
    chown root:root "$1" && chmod 0644 "$1" && mkdir -p "$(dirname "$store/$2")" && mv -f "$1" "$store/$2"
}

if ! whole UD-Q4_K_XL/35b-00001-of-00002.gguf 1111111111111111111111111111111111111111111111111111111111111111; then
    part=$store/UD-Q4_K_XL/35b-00001-of-00002.gguf.part
    mkdir -p "$(dirname "$part")"
    [ "$(size "$part")" -le 10000000000 ] || rm -f "$part"
    if [ "$(size "$part")" -lt 10000000000 ]; then
        # The token comes on stdin, so that no process list shows it; curl does not carry it to another host.
        curl -fsSL --retry 5 --retry-connrefused -C - -o "$part" -K - https://hub.lan/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/resolve/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc/UD-Q4_K_XL/35b-00001-of-00002.gguf <<'END' &
header = "Authorization: Bearer hf_token"
END
        curl=$!
        seconds=0
        while kill -0 $curl 2>/dev/null; do
            sleep 1
            seconds=$((seconds + 1))
            [ $((seconds % 5)) != 0 ] || echo "fetching "UD-Q4_K_XL/35b-00001-of-00002.gguf": $(size "$part") of 10000000000 bytes"
        done
        wait $curl
        rc=$?
        # 33 and 36: this server cannot go on from the middle, and what is here would be in the way for ever.
        [ $rc != 33 ] && [ $rc != 36 ] || rm -f "$part"
        [ $rc != 22 ] || echo "if that was 401 or 403, the hub wants a token: give one as HF_TOKEN, for the hub in HF_ENDPOINT" >&2
        [ $rc = 0 ] || { echo "cannot fetch "UD-Q4_K_XL/35b-00001-of-00002.gguf" of model 35b: curl ended with $rc; run again to go on" >&2; exit 1; }
    fi
    admit "$part" UD-Q4_K_XL/35b-00001-of-00002.gguf 1111111111111111111111111111111111111111111111111111111111111111
fi
if ! whole UD-Q4_K_XL/35b-00002-of-00002.gguf 2222222222222222222222222222222222222222222222222222222222222222; then
    part=$store/UD-Q4_K_XL/35b-00002-of-00002.gguf.part
    mkdir -p "$(dirname "$part")"
    [ "$(size "$part")" -le 20000000000 ] || rm -f "$part"
    if [ "$(size "$part")" -lt 20000000000 ]; then
        # The token comes on stdin, so that no process list shows it; curl does not carry it to another host.
        curl -fsSL --retry 5 --retry-connrefused -C - -o "$part" -K - https://hub.lan/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/resolve/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc/UD-Q4_K_XL/35b-00002-of-00002.gguf <<'END' &
header = "Authorization: Bearer hf_token"
END
        curl=$!
        seconds=0
        while kill -0 $curl 2>/dev/null; do
            sleep 1
            seconds=$((seconds + 1))
            [ $((seconds % 5)) != 0 ] || echo "fetching "UD-Q4_K_XL/35b-00002-of-00002.gguf": $(size "$part") of 20000000000 bytes"
        done
        wait $curl
        rc=$?
        # 33 and 36: this server cannot go on from the middle, and what is here would be in the way for ever.
        [ $rc != 33 ] && [ $rc != 36 ] || rm -f "$part"
        [ $rc != 22 ] || echo "if that was 401 or 403, the hub wants a token: give one as HF_TOKEN, for the hub in HF_ENDPOINT" >&2
        [ $rc = 0 ] || { echo "cannot fetch "UD-Q4_K_XL/35b-00002-of-00002.gguf" of model 35b: curl ended with $rc; run again to go on" >&2; exit 1; }
    fi
    admit "$part" UD-Q4_K_XL/35b-00002-of-00002.gguf 2222222222222222222222222222222222222222222222222222222222222222
fi
rm -f /var/lib/llamaherd/incoming/1111111111111111111111111111111111111111111111111111111111111111 /var/lib/llamaherd/incoming/2222222222222222222222222222222222222222222222222222222222222222 
cd "$store" && {
    stat -c '%s	%.9Y	1111111111111111111111111111111111111111111111111111111111111111	%n' UD-Q4_K_XL/35b-00001-of-00002.gguf
    stat -c '%s	%.9Y	2222222222222222222222222222222222222222222222222222222222222222	%n' UD-Q4_K_XL/35b-00002-of-00002.gguf
} >.manifest.part && mv -f .manifest.part .manifest && chmod 0644 .manifest
