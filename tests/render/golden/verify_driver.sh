{
<<< verify_gpu.sh: LC_ALL=C
>>> section brought ''
find /opt/llamaherd/libexec/fetcher/ /opt/llamaherd/libexec/wait-healthy /opt/llamaherd/libexec/started /opt/llamaherd/libexec/gpu-gate /opt/llamaherd/libexec/gpu-check /etc/apt/preferences.d/00-llamaherd-nvidia-wanted /etc/apt/apt.conf.d/52llamaherd-nvidia /etc/modules-load.d/llamaherd-nvidia.conf /etc/systemd/system/docker.service.d/llamaherd-cards.conf ! -type d -printf '%m\t%u\t%p\n' 2>/dev/null | lines
section 'brought sums' ''
find /opt/llamaherd/libexec/fetcher/ /opt/llamaherd/libexec/wait-healthy /opt/llamaherd/libexec/started /opt/llamaherd/libexec/gpu-gate /opt/llamaherd/libexec/gpu-check /etc/apt/preferences.d/00-llamaherd-nvidia-wanted /etc/apt/apt.conf.d/52llamaherd-nvidia /etc/modules-load.d/llamaherd-nvidia.conf /etc/systemd/system/docker.service.d/llamaherd-cards.conf -type f -exec sha256sum {} + 2>/dev/null | lines

<<< verify_gpu.sh: section addresses ''
>>> stat -c '%a %U %n' /etc/llamaherd /etc/llamaherd/keys /opt/llamaherd /opt/llamaherd/builds /opt/llamaherd/libexec /var/lib/llamaherd 2>/dev/null | lines
section driver ''
cat /proc/driver/nvidia/version 2>/dev/null | lines
section 'driver by its library' ''
timeout 30 nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>&1 | head -n 1 | lines
section 'driver on disk' ''
PATH=$PATH:/usr/sbin:/sbin modinfo -F version nvidia 2>/dev/null | lines
section 'persistence daemon' ''
systemctl show -p LoadState -p ActiveState nvidia-persistenced.service 2>&1 | lines


<<< verify_gpu.sh: section nvcc ''
>>> } </dev/null
