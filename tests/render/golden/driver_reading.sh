# Keeps what was measured of servers before their driver is changed; nothing, where nothing was.
mkdir -p /var/lib/llamaherd && (umask 077 && base64 -d >/var/lib/llamaherd/driver-reading.llamaherd-new <<'END'
base64|{"format": 1}
base64|\ No newline at end of file
END
) && mv -f /var/lib/llamaherd/driver-reading.llamaherd-new /var/lib/llamaherd/driver-reading
