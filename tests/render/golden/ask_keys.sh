{
<<< texts.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# Which of these servers have a key here. Changes nothing, and shows no key.
for name in chat small-group; do
    [ ! -e /etc/llamaherd/keys/"$name" ] || say key "$name"
done

finish
} </dev/null
