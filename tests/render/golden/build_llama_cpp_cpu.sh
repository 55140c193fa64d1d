#!/bin/sh
# Builds llama.cpp as llama.cpp-254c2e111fca. Runs in a unit of its own as user llama-build, so that a lost connection does
# not stop it. All happens in $work; what is finished has a manifest, which is written last.
set -eu
work=${1:-/var/lib/llamaherd/build}
cache=${2:-/var/cache/llamaherd}
out=$work/out

fail() {
    printf '%s\n' "$1" >"$work/failed"
    exit 1
}
# Fetches by a command that ends in time, also where the other end sends a byte now and then; its last words are kept.
fetch() {
    timeout 3600 "$@" >"$work/fetch.log" 2>&1 && return
    [ $? != 124 ] || echo "not all of it has come within $((3600 / 60)) min" >>"$work/fetch.log"
    return 1
}

cd "$work"
rm -rf source tree out failed
mkdir source tree out out/bin
began=$(date +%s)

archive=$cache/sources/abababababababababababababababababababababababababababababababab
have=$(sha256sum "$archive" | cut -d ' ' -f 1)
if [ "$have" != abababababababababababababababababababababababababababababababab ]; then
    rm -f "$archive"
    fail llama.tar.gz" has sha256 $have, the inventory says abababababababababababababababababababababababababababababababab"
fi
tar -C source -xf "$archive" || fail llama.tar.gz" is no archive that tar can read"
source=$work/source/llama.cpp
[ -f "$source/CMakeLists.txt" ] || fail "there is no CMakeLists.txt in folder '"llama.cpp"' of the source"

# As many jobs as cores, but no more than memory holds: a compiler that swaps takes the whole machine with it.
cores=$(nproc)
memory=$(awk '/^MemAvailable:/ {printf "%d", $2 * 1024}' /proc/meminfo)
jobs=$((memory / 1073741824))
[ "$jobs" -ge 1 ] || jobs=1
[ "$jobs" -le "$cores" ] || jobs=$cores

# Compiles are told apart by content, not by path or time, so that a rebuild from scratch finds them again.
export CCACHE_DIR="$cache/ccache" CCACHE_BASEDIR="$work" CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content
export CCACHE_MAXSIZE=10G CCACHE_SLOPPINESS=time_macros CMAKE_BUILD_PARALLEL_LEVEL="$jobs"

cmake -S "$source" -B tree -G Ninja \
    -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=OFF \
    -DGGML_NATIVE=ON \
    -DGGML_CCACHE=ON \
    -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF \
    -DLLAMA_BUILD_NUMBER=11434 \
    -DLLAMA_BUILD_COMMIT=unknown \
    >configure.log 2>&1 || fail "CMake cannot configure it; the log is /var/lib/llamaherd/work/llama.cpp-254c2e111fca/configure.log"
unused=$(awk '/variables were not used by the project:/ {on = 1; next} on && NF {printf "%s ", $1}' configure.log)
# ggml reads every GGML_ name there is, so that CMake counts none as unused; what nothing declared has no type.
unused=$unused$(sed -n 's/^\(GGML_[A-Za-z0-9_]*\):UNINITIALIZED=.*/\1 /p' tree/CMakeCache.txt)
[ -z "$unused" ] || fail "this engine does not know these CMake options: $unused"

cmake --build tree -j "$jobs" --target llama-server llama-fit-params >build.log 2>&1 ||
    fail "it does not compile; the log is /var/lib/llamaherd/work/llama.cpp-254c2e111fca/build.log"
for target in llama-server llama-fit-params; do
    cp "tree/bin/$target" out/bin/
done
timeout 300 out/bin/llama-server --version >version.log 2>&1 || fail "the server that was built does not start; see /var/lib/llamaherd/work/llama.cpp-254c2e111fca/version.log"
# Its flags, without their descriptions: whoever checks arguments later knows what this build takes.
timeout 300 out/bin/llama-server --help >help.log 2>&1 || true
grep -aE '^--?[A-Za-z]' help.log | grep -v 'argument has been removed' | sed -E 's/  +[^- ].*$//; s/, +/,/g; s/ +$//' | head -c 64000 >out/flags

line() { tr -d '"\\' | head -n 1; }
{
    printf '%s' '{"id": "llama.cpp-254c2e111fca", "kind": "llama.cpp", "source": {"archive": "llama.tar.gz", "sha256": "abababababababababababababababababababababababababababababababab"}, "options": {"CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "OFF", "GGML_NATIVE": "ON", "GGML_CCACHE": "ON", "LLAMA_BUILD_TESTS": "OFF", "LLAMA_BUILD_EXAMPLES": "OFF", "LLAMA_USE_PREBUILT_UI": "OFF", "LLAMA_BUILD_NUMBER": "11434", "LLAMA_BUILD_COMMIT": "unknown"}'
    printf ', "compiler": "%s"' "$(c++ --version | line)"
    printf ', "version": "%s"' "$(grep -m 1 version version.log | line)"
    printf ', "jobs": %s, "seconds": %s' "$jobs" $(($(date +%s) - began))
    printf ', "sha256": { %s}}\n' "$(cd out/bin && sha256sum -- * | awk '{printf "%s\"%s\": \"%s\"", sep, $2, $1; sep = ", "}')"
} >out/manifest.json.part
mv out/manifest.json.part out/manifest.json
