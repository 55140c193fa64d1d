# Each server is a user of its own: what they read, everybody may read, and every folder above it let them through.
nobody() {
    setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
}
# $1 a path, $2 what others may do there; its folders first.
open() {
    [ "$1" = / ] || open "$(dirname "$1")" x || return 1
    case $(stat -c %A "$1") in
    *r?x) return 0 ;;
    *r??) [ "$2" != r ] || return 0 ;;
    *x) [ "$2" != x ] || return 0 ;;
    esac
    if [ "$(stat -c %u "$1")" != 0 ]; then
        echo "servers may not read $1, which belongs to $(stat -c %U "$1"): see that everybody may (\`chmod o+$2\`), or keep models elsewhere (\`store: path:\`)" >&2
        return 1
    fi
    chmod "o+$2" "$1" && echo "servers may read $1 again"
}
if [ -d '/mnt/a b/model.gguf' ]; then open '/mnt/a b/model.gguf' rx; else open '/mnt/a b/model.gguf' r; fi || exit 1
if ! nobody test -r '/mnt/a b/model.gguf'; then
    echo '/mnt/a b/model.gguf'" may not be read by servers, whatever its permissions say: see \`namei -l\` and \`getfacl\`" >&2
    exit 1
fi
