-- Reads `model` from the body of a request, and refuses with a sentence what two programs could read differently.
-- HAProxy checks whether a user may use this model, and the server reads the body again with a parser of its own.
-- A body that passes is one JSON object in UTF-8. It has `model` once, in a key without escapes.

local DEPTH = 100
local QUOTE, OBJECT, ARRAY = string.byte('"{[', 1, 3)
local LITERALS = { ["true"] = true, ["false"] = true, ["null"] = true }
local byte, find, match, sub = string.byte, string.find, string.match, string.sub

local function refuse(sentence)
    error({ sentence = sentence }, 0)
end

local function refuse_syntax()
    refuse("the request is not one JSON object")
end

-- Returns the model that a body names, or nil where it names none.
-- Each `skip_…` takes the position of a token and returns the position of the next one, behind blanks.
local function read_model(body)
    local skip_value
    local slash = 0

    local function skip_string(at)
        local stop = at
        at = at + 1
        while true do
            -- Each quote and each backslash is searched once: a string may have millions of them.
            if stop < at then
                stop = find(body, '"', at, true) or refuse_syntax()
            end
            if slash < at then
                slash = find(body, "\\", at, true) or math.huge
            end
            if stop < slash then
                return match(body, "^[ \t\n\r]*()", stop + 1), stop
            end
            at = match(body, '^["\\/bfnrt]()', slash + 1) or match(body, "^u%x%x%x%x()", slash + 1) or refuse_syntax()
        end
    end

    local function skip_object(at, depth, on_key)
        local empty = match(body, "^{[ \t\n\r]*}[ \t\n\r]*()", at)
        local member = match(body, "^{[ \t\n\r]*()", at)
        while not empty do
            if byte(body, member) ~= QUOTE then
                refuse_syntax()
            end
            local behind, stop = skip_string(member)
            local value = match(body, "^:[ \t\n\r]*()", behind) or refuse_syntax()
            if on_key then
                on_key(sub(body, member + 1, stop - 1), value)
            end
            local after = skip_value(value, depth)
            member = match(body, "^,[ \t\n\r]*()", after)
            if not member then
                return match(body, "^}[ \t\n\r]*()", after) or refuse_syntax()
            end
        end
        return empty
    end

    local function skip_array(at, depth)
        local empty = match(body, "^%[[ \t\n\r]*][ \t\n\r]*()", at)
        local element = match(body, "^%[[ \t\n\r]*()", at)
        while not empty do
            -- Arrays that are long are of numbers: tokens, or what is embedded.
            local number = match(body, "^-?%d[%d.eE+-]*,[ \t\n\r]*()", element)
            if number then
                element = number
            else
                local after = skip_value(element, depth)
                element = match(body, "^,[ \t\n\r]*()", after)
                if not element then
                    return match(body, "^][ \t\n\r]*()", after) or refuse_syntax()
                end
            end
        end
        return empty
    end

    function skip_value(at, depth)
        local sign = byte(body, at)
        if sign == QUOTE then
            return (skip_string(at))
        elseif sign == OBJECT or sign == ARRAY then
            if depth == DEPTH then
                refuse("the request is nested more than " .. DEPTH .. " levels deep")
            end
            local skip = sign == OBJECT and skip_object or skip_array
            return skip(at, depth + 1)
        end
        local after = match(body, "^-?%d[%d.eE+-]*[ \t\n\r]*()", at)
        if after then
            return after
        end
        local word, behind = match(body, "^(%l+)[ \t\n\r]*()", at)
        return LITERALS[word] and behind or refuse_syntax()
    end

    if not utf8.len(body) or find(body, "\0", 1, true) then
        refuse("the request is not a text in UTF-8")
    end
    local model
    local seen = false
    local first = match(body, "^[ \t\n\r]*(){") or refuse_syntax()
    local after = skip_object(first, 1, function(key, value)
        if find(key, "\\", 1, true) then
            refuse("a key at the top of the request is written with a backslash: write it without one")
        elseif key:lower() == "model" then
            if seen then
                refuse("the request has `model` twice")
            end
            seen = true
            model = key == "model" and match(body, '^"([^"]*)', value) or nil
        end
    end)
    if after <= #body then
        refuse("something follows the JSON object of the request")
    end
    if model then
        -- Some clients write each slash with a backslash.
        model = model:gsub("\\/", "/")
        if find(model, "\\", 1, true) then
            refuse("the value of `model` is written with a backslash: write it without one")
        end
    end
    return model
end

-- Sets txn.model, or txn.refused, which the configuration sets before: what fails here is refused.
core.register_action("read_model", { "http-req" }, function(txn)
    local body = txn.f:req_body() or ""
    if #body ~= txn.f:req_body_size() then
        return txn:set_var("txn.refused", "the request and its headers are too large together")
    end
    local done, result = pcall(read_model, body)
    if done then
        if result then
            txn:set_var("txn.model", result)
        end
        txn:unset_var("txn.refused")
    elseif type(result) == "table" then
        txn:set_var("txn.refused", result.sentence)
    end
end)
