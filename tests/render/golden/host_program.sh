# Runs the program of this version, which reads its document from stdin. Where it is missing, it is received first.
program=/opt/llamaherd/libexec/onhost/0123456789abcdef.pyz
command -v python3 >/dev/null 2>&1 || { . /etc/os-release; echo "llamaherd: no python3 on $ID-$VERSION_ID"; exit 69; }
[ ! -f "$program" ] || { echo 'llamaherd: go'; exec python3 -IS "$program"; }
echo 'llamaherd: send'
exec python3 -IS -c RECEIVER "$program" keep
