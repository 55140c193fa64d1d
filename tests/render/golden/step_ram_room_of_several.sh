# Nor is a server stopped for one that has no room in RAM: the kernel would end something else.
unit_pids=$(systemctl show -P MainPID llama-coder.service) container_pids=$(docker top llama-coder -eo pid 2>/dev/null | sed 1d)
leaving_pids=$(systemctl show -P MainPID llama-old.service; docker top llama-old -eo pid 2>/dev/null | sed 1d; systemctl show -P MainPID llama-small.service; docker top llama-small -eo pid 2>/dev/null | sed 1d; )
lacking=$(no_room_after ram 7516192768 "$unit_pids" "$container_pids $leaving_pids")
<<< step_ram_room.sh: if [ "$lacking" ]; then
>>>     exit 1
