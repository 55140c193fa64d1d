-- Wakes rigs that sleep, and holds requests for their models until a server responds.
--
-- txn.wake has the words of the configuration: the backend, the most seconds and the most requests to hold, and each
-- server that can be woken, as RIG/SERVER. Requests of a backend are held together: the first one starts the wake.

local SOCKET = "unix@/run/llamaherd-wake.sock"
-- A packet may be lost, and a network card may miss it while the rig falls asleep.
local PACKET_SECONDS = 5
-- A host that refuses connections is awake. Its servers have so long to begin to respond.
local REFUSED_SECONDS = 120
-- A server that went down so recently may be that of a rig that falls asleep just now.
local RECENT_SECONDS = 10
-- If no server responded in time, requests are not held for so long.
local REST_SECONDS = 300
-- A held request notes the time this often; a request whose client has left does not.
local PAUSE_MS, LEFT_SECONDS = 300, 3

local wakes = {}

-- Returns whether a host does not respond at all. Servers of a host that is awake refuse connections, or respond.
local function is_silent(stats)
    local check, reason = stats.check_status or "", stats.last_chk or ""
    return stats.status:find("^DOWN") and not check:find("L[67]") and not reason:lower():find("refused", 1, true)
end

-- Returns rigs whose servers do not respond, whether one of these went down recently, and whether one is starting.
local function survey(backend, servers)
    local silent, recent, starts = {}, false, false
    for server, rig in pairs(servers) do
        local found = backend.servers[server]
        local stats = found and found:get_stats()
        if stats and is_silent(stats) then
            silent[rig] = true
        elseif stats and stats.status:find("^DOWN") then
            recent = recent or (tonumber(stats.lastchg) or 0) < RECENT_SECONDS
            starts = starts or (stats.check_status or ""):find("L[67]") ~= nil
        end
    end
    return silent, recent, starts
end

local function send_packet(rig)
    local socket = core.tcp()
    socket:settimeout(2)
    if socket:connect(SOCKET) then
        socket:send(rig .. "\n")
        socket:receive("*l")
    end
    socket:close()
end

local function send_packets(wake, silent, now)
    if now >= wake.packet then
        wake.packet = now + PACKET_SECONDS
        for rig in pairs(silent) do
            send_packet(rig)
        end
    end
end

local function is_full(wake, most, now)
    local count = 0
    for held, at in pairs(wake.held) do
        if now - at > LEFT_SECONDS then
            wake.held[held] = nil
        else
            count = count + 1
        end
    end
    return count >= most
end

-- A process from before a reload checks no server any more: its requests are refused, and clients send them again.
local function is_ending()
    return tonumber(core.get_info().Stopping) == 1
end

local function hold(txn, name, backend, servers, wake)
    local this = {}
    local now = core.now().sec
    while now < wake.ends and not is_ending() do
        if txn.f:nbsrv(name) > 0 then
            wakes[name] = nil
            return
        end
        wake.held[this] = now
        local silent, _, starts = survey(backend, servers)
        if next(silent) or starts then
            wake.asleep = now
        elseif now - wake.asleep > REFUSED_SECONDS then
            break
        end
        send_packets(wake, silent, now)
        core.msleep(PAUSE_MS)
        now = core.now().sec
    end
    wake.held[this] = nil
    wake.ends, wake.rests = math.min(wake.ends, now), now + REST_SECONDS
end

core.register_action("wake", { "http-req" }, function(txn)
    local words, servers = {}, {}
    for word in txn:get_var("txn.wake"):gmatch("%S+") do
        local rig, server = word:match("^([^/]+)/(.+)$")
        if rig then
            servers[server] = rig
        else
            words[#words + 1] = word
        end
    end
    txn:unset_var("txn.wake")
    local name, seconds, most = words[1], tonumber(words[2]), tonumber(words[3])
    local backend, now = core.backends[name], core.now().sec
    local silent, recent = survey(backend, servers)
    local wake = wakes[name]
    if not wake or now >= (wake.rests or wake.ends + REST_SECONDS) then
        if not next(silent) and not recent then
            return
        end
        wake = { ends = now + seconds, packet = 0, asleep = now, held = {} }
        wakes[name] = wake
    end
    if now >= wake.ends then
        send_packets(wake, silent, now)
    elseif is_full(wake, most, now) then
        txn:set_var("txn.wake_full", true)
    else
        hold(txn, name, backend, servers, wake)
    end
end)
