{
<<< verify_gpu.sh: LC_ALL=C
>>> section brought ''
find /opt/llamaherd/libexec/fetcher/ /opt/llamaherd/libexec/wait-healthy /opt/llamaherd/libexec/started /opt/llamaherd/libexec/gpu-gate /opt/llamaherd/libexec/gpu-check /etc/systemd/system/docker.service.d/llamaherd-cards.conf /opt/llamaherd/libexec/gpu-fans /opt/llamaherd/libexec/gpu-power /etc/llamaherd/gpu-power /etc/systemd/system/llamaherd-gpu-power.service ! -type d -printf '%m\t%u\t%p\n' 2>/dev/null | lines
section 'brought sums' ''
find /opt/llamaherd/libexec/fetcher/ /opt/llamaherd/libexec/wait-healthy /opt/llamaherd/libexec/started /opt/llamaherd/libexec/gpu-gate /opt/llamaherd/libexec/gpu-check /etc/systemd/system/docker.service.d/llamaherd-cards.conf /opt/llamaherd/libexec/gpu-fans /opt/llamaherd/libexec/gpu-power /etc/llamaherd/gpu-power /etc/systemd/system/llamaherd-gpu-power.service -type f -exec sha256sum {} + 2>/dev/null | lines

<<< verify_gpu.sh: section addresses ''
>>> find /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 -type f ! -name .manifest -printf '%s\t%P\n' 2>/dev/null | lines
section cards ''
timeout 30 nvidia-smi --query-gpu=index,uuid,pci.bus_id,power.limit,clocks.current.graphics,fan.speed --format=csv,nounits 2>&1 | lines
section 'power unit' ''
systemctl show -p ActiveState -p UnitFileState llamaherd-gpu-power.service 2>&1 | lines
for note in /run/llamaherd/gpu-power/GPU-*; do
    [ -f "$note" ] || continue
    section held "${note##*/}"
    lines <"$note"
done


<<< verify_gpu.sh: # One request. Headers come on stdin, where no process list shows them; the last line printed is the status code.
>>> } </dev/null
