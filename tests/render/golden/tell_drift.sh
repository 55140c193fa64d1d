{
<<< inspect_gpu.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# What a look has found, for the exporter, if it is told to read it.
if ! grep -q -e '--collector.textfile.directory=/var/lib/llamaherd-figures' /etc/systemd/system/llamaherd-exporter.service 2>/dev/null; then
    say told no
    finish
fi
(
<<< arms.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /var/lib/llamaherd-figures/drift.prom /var/lib/llamaherd-figures 0644 root <<'END'
base64|llamaherd_diff_seconds 7
END

) || finish
say told yes

finish
} </dev/null
