"""What was done to a host: releases, which it keeps itself."""
