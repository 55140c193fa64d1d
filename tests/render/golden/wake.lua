<<< templates/gateway/wake.lua: -- Wakes rigs that sleep, and holds requests for their models until a server responds.
>>> end)
