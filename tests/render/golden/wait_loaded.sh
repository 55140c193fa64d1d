<<< templates/serve/wait-loaded.sh: #!/bin/sh
>>> exit 1
