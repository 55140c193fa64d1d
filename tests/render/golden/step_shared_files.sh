# Two runs at once would write these files at the same time.
<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'writing what all servers share' || exit 1
<<< step_unit.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /opt/llamaherd/libexec/wait-healthy /opt/llamaherd/libexec 0755 root <<'END'
base64|<<< templates/serve/wait-healthy.sh: #!/bin/sh
base64|>>>     sleep 0.2
END
put_file /opt/llamaherd/libexec/started /opt/llamaherd/libexec 0755 root <<'END'
base64|<<< started.sh: #!/bin/sh
base64|>>> } >"$folder/$name.new" && mv -f "$folder/$name.new" "$folder/$name"
END
put_file /opt/llamaherd/libexec/prove /opt/llamaherd/libexec 0755 root <<'END'
base64|<<< templates/serve/prove.py: #!/usr/bin/python3 -I
base64|>>> sys.exit(code if why else 0)
END
put_file /opt/llamaherd/libexec/probation /opt/llamaherd/libexec 0755 root <<'END'
base64|<<< templates/serve/probation.py: #!/usr/bin/python3 -I
base64|>>>     main(sys.argv[1])
END

