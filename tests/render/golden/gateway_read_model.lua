<<< templates/gateway/read-model.lua: -- Reads `model` from the body of a request, and refuses with a sentence what two programs could read differently.
>>> end)
