{
<<< verify_gpu.sh: LC_ALL=C
>>> } </dev/null
