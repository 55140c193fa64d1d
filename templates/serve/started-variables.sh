# Names of the variables that a process has otherwise than it should, on one line. $1 is the process, $2 an expression for
# the names of those that it should not have beside: empty where an image may bring its own. What it should have comes on
# stdin, NAME=VALUE.
other_variables() {
    others=$({ sed 's/^/+/' && tr '\n\0' ' \n' <"/proc/$1/environ"; } 2>/dev/null | strangers=$2 awk '
        $0 == "+" { next }
        /^\+/ { text = substr($0, 2); name = substr(text, 1, index(text, "=") - 1); wanted[name] = text; next }
        {
            name = substr($0, 1, index($0, "=") - 1)
            if (name in wanted) { if (wanted[name] == $0) delete wanted[name] }
            else if (ENVIRON["strangers"] != "" && name ~ ENVIRON["strangers"]) print name
        }
        END { for (name in wanted) print name }')
    [ -z "$others" ] || printf '%s\n' "$others" | sort -u | tr '\n' ' ' | sed 's/ $//'
}
