<<< templates/serve/wait-healthy.sh: #!/bin/sh
>>>     sleep 0.2
