# Runs the program of this version, which reads its document from stdin. Where it is missing, it is received first.
program=/opt/llamaherd/libexec/onhost/0123456789abcdef.pyz
command -v python3 >/dev/null 2>&1 || { echo 'llamaherd: no python3'; exit 69; }
[ ! -f "$program" ] || { echo 'llamaherd: go'; exec python3 -I "$program"; }
echo 'llamaherd: send'
exec python3 -I -c '
import os, sys
path, left = sys.argv[1], int(sys.argv[2])
new = path + "." + str(os.getpid())
os.umask(0o022)
try:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(new, "wb") as file:
        while left:
            piece = os.read(0, min(left, 65536))
            if not piece:
                sys.exit("llamaherd: the connection ended while the program was sent\n  help: `herd up` sends it again")
            left -= file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, path)
except BaseException as error:
    if os.path.exists(new):
        os.unlink(new)
    if isinstance(error, OSError):
        sys.exit("llamaherd: cannot write %s: %s\n  help: `df -h /opt` shows whether there is room" % (path, error.strerror))
    raise
try:
    programs = sorted(os.scandir(os.path.dirname(path)), key=lambda each: each.stat().st_mtime)
    for each in programs[:-3]:
        os.unlink(each.path)
except OSError:
    pass  # another run has removed it just now
os.execv(sys.executable, [sys.executable, "-I", path])
' "$program" 10
