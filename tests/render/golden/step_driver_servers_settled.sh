# Waits until no server is starting any more, as they do after a boot, for so long at most.
for _ in $(seq 360); do
    case $(systemctl show -P ActiveState llama-reasoner.service llama-worker.service | tr '\n' ' ') in
    *activating*) sleep 1 ;;
    *) break ;;
    esac
done
