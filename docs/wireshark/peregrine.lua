-- A dissector for Wireshark and tshark: the packet exchange over UDP and raw Ethernet, and the stream path
-- over TCP, as docs/PROTOCOL.md describes them. docs/wireshark/README.md says how to install and use it. It is
-- one file, because Wireshark and `tshark` load a script by its name.
--
-- Everything that a packet holds may be wrong. So each read is preceded by a check of the length, and what
-- contradicts the protocol becomes expert information. Everything that the dissector remembers is bounded.

local peregrine = Proto("peregrine", "Peregrine")
local over_tcp = Proto("peregrine_tcp", "Peregrine over TCP")
local over_ethernet = Proto("peregrine_eth", "Peregrine over raw Ethernet")

------------------------------------------------------------------------------------------------------------
-- The numbers of the protocol, and their names in docs/PROTOCOL.md and docs/REPRESENTATION.md

local PACKET_VERSION, MESSAGE_VERSION = 3, 1
local HEADER_BYTES, BIND_BODY_BYTES, BITMAP_BYTES_MAX = 64, 448, 512
local MESSAGE_HEADER_BYTES, RECORD_HEADER_BYTES = 32, 32
local ETHER_TYPE, PORT = 0x88b5, 7193

local PACKET_KINDS = {
  [1] = "CALL", [2] = "RESULT", [3] = "HAVE_CALL", [4] = "HAVE_RESULT", [5] = "PROBE", [6] = "QUIT",
  [7] = "LET_GO", [8] = "REFUSED", [9] = "BYE", [10] = "HELLO", [11] = "COOKIE", [12] = "BIND",
  [13] = "BOUND", [14] = "UNBOUND", [15] = "ASK", [16] = "SHAKE",
}
local CALL, RESULT, HAVE_CALL, HAVE_RESULT, PROBE, QUIT, LET_GO, REFUSED = 1, 2, 3, 4, 5, 6, 7, 8
local BYE, HELLO, COOKIE, BIND, BOUND, UNBOUND, SHAKE = 9, 10, 11, 12, 13, 14, 16

local MESSAGE_KINDS = {
  [1] = "bind", [2] = "describe", [3] = "unbind", [4] = "call", [5] = "abandon", [65] = "bound",
  [66] = "refused", [67] = "description", [68] = "revoked", [69] = "goodbye", [70] = "reply",
}
local M_BIND, M_DESCRIBE, M_UNBIND, M_CALL, M_ABANDON = 1, 2, 3, 4, 5
local M_BOUND, M_REFUSED, M_DESCRIPTION, M_REVOKED, M_GOODBYE, M_REPLY = 65, 66, 67, 68, 69, 70

-- The flags of a packet, with the bit of each.
local PLEASE, RESENT, CHECKED, ALL, REPLIED, ELSEWHERE = 1, 2, 4, 8, 16, 32
local KNOWN_FLAGS = 63
-- The packet is encrypted, except for its header.
local SEALED = 64

local ANSWERS = {
  [0] = "Ok", [1] = "Err", [2] = "NotExecuted", [3] = "MayHaveExecuted", [4] = "PostAgain",
}
local ERROR_KINDS = {
  [1] = "NotFound", [2] = "NameTaken", [3] = "BadName", [4] = "Denied", [5] = "InterfaceMismatch",
  [6] = "ProtocolMismatch", [7] = "Exhausted", [8] = "System", [9] = "NoSuchProcedure",
  [10] = "BadArguments", [11] = "TooLarge", [12] = "Overloaded", [13] = "ServerGone", [14] = "Panicked",
  [15] = "TimedOut", [16] = "BadResult", [17] = "Forked", [18] = "Withdrawn", [19] = "Relayed",
}
local PING, DESCRIBE, BATCH, STREAMS = 0xffffffff, 0xfffffffe, 0xfffffffd, 0xfffffffc
local PROCEDURES = { [PING] = "ping", [DESCRIBE] = "describe", [BATCH] = "batch", [STREAMS] = "streams" }
local EXTENSION_TAGS = { [0] = "padding", [1] = "chain", [2] = "deadline", [3] = "metadata" }
local BATCH_KINDS = { [0] = "skipped", [1] = "call", [2] = "cancellation", [3] = "one-way call" }
local STREAM_KINDS = {
  [1] = "items", [2] = "credit", [3] = "end", [4] = "no more wanted", [5] = "given up", [6] = "question",
}
local ORDERS = { [1] = "little-endian", [2] = "big-endian" }
local CHECK_STATUS = { [0] = "bad", [1] = "good", [2] = "not verified" }
local BAD, GOOD, UNVERIFIED = 0, 1, 2

-- How many records, entries or texts of one message are shown. A message may have millions.
local SHOWN_MAX = 1000
-- How many extensions of a call, and how many pairs of metadata, a receiver reads.
local EXTENSIONS_MAX = 32
local PAIRS_MAX = 32
-- How many calls, handles, connections, messages of several fragments, and interfaces are remembered. The
-- oldest ones are forgotten.
local CALLS_MAX, HANDLES_MAX, CONNECTIONS_MAX, MESSAGES_MAX = 262144, 65536, 65536, 65536
local INTERFACES_MAX = 256
-- How many methods of an interface are remembered.
local METHODS_MAX = 1024
-- How many bytes of a text appear in the column of information.
local TEXT_MAX = 256

------------------------------------------------------------------------------------------------------------
-- Fields

local f = {}

local function u8(key, name, ...) f[key] = ProtoField.uint8("peregrine." .. key, name, base.DEC, ...) end
local function u16(key, name, ...) f[key] = ProtoField.uint16("peregrine." .. key, name, base.DEC, ...) end
local function u32(key, name, ...) f[key] = ProtoField.uint32("peregrine." .. key, name, base.DEC, ...) end
local function u64(key, name, ...) f[key] = ProtoField.uint64("peregrine." .. key, name, base.DEC, ...) end
local function hex(key, type, name) f[key] = ProtoField[type]("peregrine." .. key, name, base.HEX) end
local function bytes(key, name) f[key] = ProtoField.bytes("peregrine." .. key, name) end
local function text(key, name) f[key] = ProtoField.string("peregrine." .. key, name) end
local function frame(key, name, kind)
  f[key] = ProtoField.framenum("peregrine." .. key, name, base.NONE, kind)
end
local function flag(key, name, type, mask)
  local width = type == "uint16" and 16 or 32
  f[key] = ProtoField.bool("peregrine." .. key, name, width, { "set", "not set" }, mask)
end

-- Of calls, on every path.
u32("call", "Call")
u32("procedure", "Procedure")
text("method", "Method")
text("interface", "Interface")
text("export", "Export")
u32("answer", "Answer", ANSWERS)
u32("error.kind", "Kind of error", ERROR_KINDS)
text("error.text", "Reason")
bytes("head", "Head")
bytes("blocks", "Blocks")
bytes("table", "Table of blocks")
frame("call_in", "Call in frame", frametype.REQUEST)
frame("response_in", "Reply in frame", frametype.RESPONSE)
frame("response_to", "Reply to the call in frame", frametype.REQUEST)
f["response_time"] = ProtoField.relative_time("peregrine.response_time", "Time from call to reply")
frame("reassembled_in", "Reassembled in frame")
u32("reassembled_length", "Length of the reassembled message")
bytes("padding", "Padding")
bytes("unreadable", "Bytes that are not part of a message")

-- Of packets.
text("packet.magic", "Magic")
u8("packet.version", "Version")
u8("packet.kind", "Kind", PACKET_KINDS)
hex("packet.check", "uint32", "Check of the header")
u8("packet.check.status", "Check of the header is", CHECK_STATUS)
u32("packet.place", "Place of the handle")
bytes("packet.secret", "Secret of the handle")
bytes("packet.nonce", "Nonce of the client")
u32("packet.sequence", "Sequence")
hex("packet.flags", "uint16", "Flags")
flag("packet.flags.please", "PLEASE: an answer is requested", "uint16", PLEASE)
flag("packet.flags.resent", "RESENT: the position is retransmitted", "uint16", RESENT)
flag("packet.flags.checked", "CHECKED: the payload has a check", "uint16", CHECKED)
flag("packet.flags.all", "ALL: the whole message was received", "uint16", ALL)
flag("packet.flags.replied", "REPLIED: the server has sent the result", "uint16", REPLIED)
flag("packet.flags.elsewhere", "ELSEWHERE: another address bound the handle", "uint16", ELSEWHERE)
u16("packet.serial", "Serial")
u16("packet.echo", "Echo")
u32("packet.total", "Bytes of the message")
u32("packet.received", "Received positions")
u32("packet.head", "Bytes of the head")
u32("packet.copied", "Copied bytes")
u32("packet.head_at", "Where the head begins")
u32("packet.fragment", "Fragment")
u32("packet.fragments", "Fragments of the message")
u32("packet.next", "First missing position")
u32("packet.piece", "Size of a full fragment")
u16("packet.credits", "Credits")
hex("packet.payload_check", "uint32", "Check of the payload")
u8("packet.payload_check.status", "Check of the payload is", CHECK_STATUS)
u16("packet.extensions", "Bytes of extensions")
hex("packet.table", "uint64", "Table")
u32("packet.generation", "Generation of the place")
bytes("packet.bitmap", "Bitmap of later positions")
bytes("packet.payload", "Fragment of the message")
hex("packet.destination", "uint16", "Destination endpoint")
hex("packet.source", "uint16", "Source endpoint")

-- Of binding, on both paths.
hex("bind.flags", "uint32", "Flags")
flag("bind.flags.link", "The place on the link", "uint32", 1)
flag("bind.flags.any", "Any interface", "uint32", 1)
flag("bind.flags.payload_checks", "Payload checks", "uint32", 2)
flag("bind.flags.big_endian", "The server's values are big-endian", "uint32", 4)
bytes("bind.cookie", "Cookie")
f["bind.hardware"] = ProtoField.ether("peregrine.bind.hardware", "Hardware address of the server")
hex("bind.endpoint", "uint16", "Endpoint of the server")
bytes("bind.digest", "Digest of the interface")
u32("bind.given", "Whether the digest is given")
u32("bind.representation", "Representation", ORDERS)
u16("bind.handles", "Handles")
u32("bind.piece", "Largest fragment")
u32("bind.result_bytes", "Bytes of the largest result")
u32("bind.call_bytes", "Bytes of the largest call")
u64("bind.message_bytes", "Bytes of the largest message")
u32("bind.calls", "Calls in flight")
u32("bind.process", "Process of the client")
u16("bind.credits", "Credits")
u32("bind.name_bytes", "Bytes of the name")
text("bind.name", "Name of the export")
hex("bind.table", "uint64", "Table")
hex("bind.epoch", "uint64", "Epoch of the server")
u32("bind.place", "Place of a handle")
u32("bind.generation", "Generation of the place")
bytes("bind.secret", "Secret of a handle")

-- Of messages over TCP.
u32("message.body", "Bytes of the body")
u8("message.kind", "Kind", MESSAGE_KINDS)
u8("message.version", "Version")
text("message.magic", "Magic")
u32("message.number", "Number of the call or question")
u32("message.binding", "Binding")
u32("message.head", "Bytes of the head")
u32("message.copied", "Copied bytes")
u32("message.head_at", "Where the head begins")
u32("message.extensions", "Bytes of extensions")

-- Of descriptions.
text("description.interface", "Interface")
u32("description.version", "Version of the interface")
bytes("description.digest", "Digest of the interface")
text("description.text", "Canonical text")
u32("description.docs", "Number of docs")
text("description.doc", "Docs")
u32("description.process", "Process of the server")
u64("description.age", "Age of the server in milliseconds")
u32("description.bindings", "Bindings")
u32("description.listens", "Number of endpoints")
text("description.endpoint", "Endpoint")
hex("description.network", "uint64", "Network")

-- Of extensions.
u32("extension.tag", "Extension", EXTENSION_TAGS)
u32("extension.length", "Bytes of the extension")
bytes("extension.content", "Content")
hex("extension.domain", "uint64", "Domain of a caller")
u32("extension.process", "Process of a caller")
u64("extension.deadline", "Microseconds that remain")
u16("extension.key_bytes", "Bytes of the key")
u16("extension.value_bytes", "Bytes of the value")
text("extension.key", "Key of metadata")
text("extension.value", "Value of metadata")

-- Of batches.
bytes("batch.token", "Token of the lane")
hex("batch.flags", "uint32", "Flags")
flag("batch.flags.async", "The procedures of the server are async", "uint32", 1)
u32("batch.pending", "Pending calls")
u32("batch.slowest", "Slowest procedure")
u32("batch.slowest_us", "Microseconds of the slowest procedure")
u32("batch.failed", "Failed one-way calls")
u32("batch.not_executed", "Failed one-way calls that were not executed")
f["batch.record"] = ProtoField.none("peregrine.batch.record", "Record")
u64("batch.number", "Number of the call in its lane")
u32("batch.kind", "Kind", BATCH_KINDS)
u32("batch.procedure", "Procedure")
u32("batch.answer", "Answer", ANSWERS)
u32("batch.head", "Bytes of the head")
u32("batch.copied", "Copied bytes")
u32("batch.head_at", "Where the head begins")
u32("batch.total", "Bytes of the message")
u32("batch.left", "Microseconds that the caller still waits")
bytes("batch.message", "Message")

-- Of the messages and results that carry streams.
bytes("streams.token", "Token of the conduit")
u64("streams.number", "Number of the message")
hex("streams.flags", "uint32", "Flags")
flag("streams.flags.open", "The client has open streams", "uint32", 1)
flag("streams.flags.first", "The client had no open streams before", "uint32", 2)
f["streams.record"] = ProtoField.none("peregrine.streams.record", "Record")
u32("streams.kind", "Kind", STREAM_KINDS)
u32("streams.stream", "Stream")
u32("streams.bytes", "Bytes of the record")
u32("streams.items", "Items in the record")
u64("streams.credit", "Credit")
u64("streams.count", "Items sent or taken")
bytes("streams.content", "Items")
text("streams.reason", "Reason")

peregrine.fields = f

local function note(name, about, group, severity)
  return ProtoExpert.new("peregrine." .. name, about, group, severity)
end
local malformed = note("malformed", "The packet contradicts the protocol", expert.group.MALFORMED,
  expert.severity.ERROR)
local cut_short = note("cut_short", "The capture does not have all bytes of the packet",
  expert.group.UNDECODED, expert.severity.WARN)
local bad_check = note("bad_check", "A check is wrong: receivers drop this packet",
  expert.group.CHECKSUM, expert.severity.ERROR)
local other_version = note("other_version", "Another version of the protocol", expert.group.UNDECODED,
  expert.severity.WARN)
local retransmitted = note("retransmitted", "The position was sent before", expert.group.SEQUENCE,
  expert.severity.NOTE)
local refused = note("refused", "The server refuses", expert.group.RESPONSE_CODE, expert.severity.WARN)
local not_reassembled = note("not_reassembled", "The message is not reassembled", expert.group.REASSEMBLE,
  expert.severity.NOTE)
local not_aligned = note("not_aligned", "No message begins here", expert.group.UNDECODED,
  expert.severity.WARN)
local not_shown = note("not_shown", "Not everything is shown", expert.group.UNDECODED,
  expert.severity.NOTE)
peregrine.experts = {
  malformed, cut_short, bad_check, other_version, retransmitted, refused, not_reassembled,
  not_aligned, not_shown,
}

peregrine.prefs.udp_ports = Pref.range("UDP ports", tostring(PORT),
  "Ports whose datagrams are dissected even if their check is wrong", 65535)
peregrine.prefs.tcp_ports = Pref.range("TCP ports", tostring(PORT),
  "Ports whose connections are dissected even if their first segment is short", 65535)
peregrine.prefs.verify = Pref.bool("Verify the checks of payloads", true,
  "Compute the CRC32C of each payload that has a check")
peregrine.prefs.reassemble = Pref.bool("Reassemble messages", true,
  "Reassemble fragments of the packet exchange, and messages that span TCP segments")
peregrine.prefs.memory = Pref.uint("Memory for fragments in MiB", 64,
  "The oldest messages of several fragments are forgotten beyond this size. Messages over TCP that are "
  .. "larger are not reassembled")

------------------------------------------------------------------------------------------------------------
-- Numbers and checks

-- Lua 5.2 has `bit32`, and other versions of Wireshark have `bit`, whose results are signed.
local bits = bit32 or bit or load([[return {
  band = function(a, b) return a & b end, bxor = function(a, b) return a ~ b end,
  rshift = function(a, n) return (a & 0xffffffff) >> n end,
}]])()
local band, bxor, rshift = bits.band, bits.bxor, bits.rshift

local CRC32C = {}
for byte = 0, 255 do
  local crc = byte
  for _ = 1, 8 do
    crc = band(crc, 1) == 1 and bxor(rshift(crc, 1), 0x82f63b78) or rshift(crc, 1)
  end
  CRC32C[byte] = crc
end

local function crc32c(data)
  local crc, byte_of = 0xffffffff, string.byte
  for from = 1, #data, 4096 do
    for i = from, math.min(from + 4095, #data) do
      crc = bxor(rshift(crc, 8), CRC32C[band(bxor(crc, byte_of(data, i)), 0xff)])
    end
  end
  return bxor(crc, 0xffffffff) % 4294967296
end

-- Reads little-endian numbers of strings. `at` counts from 0.
local function half(data, at)
  local a, b = string.byte(data, at + 1, at + 2)
  return a + b * 256
end
local function word(data, at)
  local a, b, c, d = string.byte(data, at + 1, at + 4)
  return a + b * 256 + c * 65536 + d * 16777216
end
local function padded(count) return math.floor((count + 15) / 16) * 16 end
local function plural(count, what) return count .. " " .. what .. (count == 1 and "" or "s") end

-- Returns a text of a packet in a form that the column of information can show.
local function shown(name) return (name:sub(1, TEXT_MAX):gsub("[^%w%-_%.:,;()`'/@ ]", "?")) end

------------------------------------------------------------------------------------------------------------
-- What is remembered

-- A table that forgets its oldest entry when it would have more than `most`.
local function bounded(most)
  return { most = most, entries = {}, order = {}, first = 1, last = 0 }
end
local function recall(memory, key) return memory.entries[key] end
local function remember(memory, key, value)
  if memory.entries[key] == nil then
    memory.last = memory.last + 1
    memory.order[memory.last] = key
    if memory.last - memory.first >= memory.most then
      memory.entries[memory.order[memory.first]] = nil
      memory.order[memory.first] = nil
      memory.first = memory.first + 1
    end
  end
  memory.entries[key] = value
  return value
end

-- `interfaces`: by digest. `binds`: by nonce. `handles`: by place and secret. `calls`: by handle and
-- sequence. `messages`: of several fragments, by handle, sequence, direction and piece.
local interfaces, binds, handles, calls, messages
-- Over TCP, the number of the stream is a part of each key. `digests`: of described exports. `numbered`: the
-- last call or question with a number. `notes`: the call or question of a message, by frame and place.
local connections, bindings, digests, numbered, notes
-- The messages of which fragments are kept, oldest first, and the bytes of these fragments.
local kept

-- Forgets everything. Wireshark calls this function before it reads a capture.
local function forget()
  interfaces, binds, handles = bounded(INTERFACES_MAX), bounded(HANDLES_MAX), bounded(HANDLES_MAX)
  calls, messages = bounded(CALLS_MAX), bounded(MESSAGES_MAX)
  connections, bindings = bounded(CONNECTIONS_MAX), bounded(HANDLES_MAX)
  digests, numbered, notes = bounded(HANDLES_MAX), bounded(CALLS_MAX), bounded(CALLS_MAX)
  kept = { first = 1, last = 0, bytes = 0 }
end
forget()
peregrine.init = forget

-- Returns the name of the procedure in a line of a canonical text. Before the parameters there are the name
-- and its earlier names, each after `was`. If `idempotent` or `oneway` precedes them, the number of words is
-- even.
local function name_of_procedure(line)
  local before = line:match("^([^(]*)%(")
  local words = {}
  for name in (before or ""):gmatch("%S+") do words[#words + 1] = name end
  return words[#words % 2 == 0 and 2 or 1]
end

-- Remembers the interface of a description.
local function learn(digest, interface, canonical)
  local known = { name = shown(interface), methods = {} }
  local number = -1
  for line in canonical:gmatch("[^\n]+") do
    if number >= 0 then
      if line:match("^[^%s(]+#%d+ = ") or number >= METHODS_MAX then break end
      known.methods[number] = shown(name_of_procedure(line) or "?")
    end
    number = number + 1
  end
  return remember(interfaces, digest, known)
end

-- Returns the name of a procedure for people, and its method if the description was seen.
local function title(procedure, digest)
  if PROCEDURES[procedure] then return "`" .. PROCEDURES[procedure] .. "`" end
  local known = digest and recall(interfaces, digest)
  local method = known and known.methods[procedure]
  if method then return "`" .. method .. "`", method, known.name end
  return "procedure " .. procedure
end

-- Returns the time between two moments in seconds.
local function span(from, to)
  local nanoseconds = math.floor((to - from) * 1e9 + 0.5)
  local rest = nanoseconds % 1000000000
  return NSTime.new((nanoseconds - rest) / 1000000000, rest)
end

------------------------------------------------------------------------------------------------------------
-- Trees

-- Adds what was concluded from other packets.
local function concluded(tree, field, range, value)
  local item = range and tree:add(field, range, value) or tree:add(field, value)
  item:set_generated()
  return item
end

-- Adds fields that follow each other. An entry is a field and its size. Returns where the next field is, or
-- nil if the bytes end before that.
local function add_all(tree, tvb, at, layout)
  for _, entry in ipairs(layout) do
    local field, size = entry[1], entry[2]
    if at + size > tvb:len() then return nil end
    tree:add_le(field, tvb:range(at, size))
    at = at + size
  end
  return at
end

local function add_flags(tree, tvb, at, size, field, each)
  local item = tree:add_le(field, tvb:range(at, size))
  for _, one in ipairs(each) do item:add_le(one, tvb:range(at, size)) end
  return item
end

-- Adds bytes if there are any.
local function add_rest(tree, field, tvb, at, size)
  size = math.min(size or tvb:len() - at, tvb:len() - at)
  if size > 0 then return tree:add(field, tvb:range(at, size)) end
end

-- Adds a text that its length precedes. Returns where the text ends and the text, or nil.
local function add_text(tree, tvb, at, field)
  if at + 4 > tvb:len() then return nil end
  local size = tvb:range(at, 4):le_uint()
  if at + 4 + size > tvb:len() then return nil end
  local value = size > 0 and tvb:range(at + 4, size):string(ENC_UTF_8) or ""
  tree:add(field, tvb:range(at, 4 + size), value)
  return at + 4 + size, size > 0 and tvb:raw(at + 4, size) or ""
end

-- Writes the columns. A frame may have several packets, whose texts follow each other.
local function set_columns(pinfo, about)
  local again = tostring(pinfo.cols.protocol) == "PEREGRINE"
  pinfo.cols.protocol:set("PEREGRINE")
  pinfo.cols.info:set((again and " | " or "") .. about)
  pinfo.cols.info:fence()
end

-- Shows the links between a call and its reply.
local function add_links(tree, pinfo, call, is_reply)
  if not call then return end
  local here = pinfo.number
  if is_reply then
    if call.request then concluded(tree, f["response_to"], nil, call.request) end
    if call.reply == here and call.request then
      concluded(tree, f["response_time"], nil, span(call.asked, call.answered))
    end
  else
    if call.request and call.request ~= here then concluded(tree, f["call_in"], nil, call.request) end
    if call.reply then concluded(tree, f["response_in"], nil, call.reply) end
  end
end

local function note_request(call, pinfo)
  if not call.request then call.request, call.asked = pinfo.number, pinfo.rel_ts end
end
local function note_reply(call, pinfo)
  if not call.reply then call.reply, call.answered = pinfo.number, pinfo.rel_ts end
end

-- Shows the procedure, and what is known about it.
local function add_procedure(tree, range, procedure, bound)
  if not procedure then return nil end
  local item = range and tree:add_le(f["procedure"], range) or concluded(tree, f["procedure"], nil, procedure)
  local about, method, interface = title(procedure, bound and bound.digest)
  if PROCEDURES[procedure] then item:append_text(" (" .. PROCEDURES[procedure] .. ")") end
  if method then concluded(tree, f["method"], range, method) end
  if interface then concluded(tree, f["interface"], range, interface) end
  if bound and bound.name then concluded(tree, f["export"], range, bound.name) end
  return about
end

------------------------------------------------------------------------------------------------------------
-- The contents of messages

-- Shows the pairs of metadata at `from..to`. Returns whether they fill this space.
local function add_metadata(tree, tvb, from, to)
  local count = 0
  while from + 4 <= to and count < PAIRS_MAX do
    local key, value = tvb:range(from, 2):le_uint(), tvb:range(from + 2, 2):le_uint()
    if from + 4 + key + value > to then return false end
    tree:add_le(f["extension.key_bytes"], tvb:range(from, 2))
    tree:add_le(f["extension.value_bytes"], tvb:range(from + 2, 2))
    local function show(field, range) tree:add(f[field], range, range:string(ENC_UTF_8)) end
    if key > 0 then show("extension.key", tvb:range(from + 4, key)) end
    if value > 0 then show("extension.value", tvb:range(from + 4 + key, value)) end
    from, count = from + 4 + key + value, count + 1
  end
  return from == to
end

local function add_extensions(tree, tvb, at, size)
  local stop, entries = math.min(at + size, tvb:len()), 0
  while at + 8 <= stop and entries < EXTENSIONS_MAX do
    local tag, length = tvb:range(at, 4):le_uint(), tvb:range(at + 4, 4):le_uint()
    if tag == 0 and length == 0 then
      add_rest(tree, f["padding"], tvb, at, stop - at)
      return
    end
    local item = tree:add_le(f["extension.tag"], tvb:range(at, 4))
    item:add_le(f["extension.length"], tvb:range(at + 4, 4))
    if at + 8 + length > stop then
      item:add_proto_expert_info(malformed, "the extension is longer than the bytes that are left")
      return
    end
    local from, to = at + 8, at + 8 + length
    if tag == 1 and length > 0 and length % 16 == 0 then
      for link = from, math.min(to, from + EXTENSIONS_MAX * 16) - 16, 16 do
        item:add_le(f["extension.domain"], tvb:range(link, 8))
        item:add_le(f["extension.process"], tvb:range(link + 8, 4))
        item:add(f["padding"], tvb:range(link + 12, 4))
      end
    elseif tag == 2 and length == 8 then
      item:add_le(f["extension.deadline"], tvb:range(from, 8))
    elseif tag == 3 then
      if not add_metadata(item, tvb, from, to) then
        item:add_proto_expert_info(malformed, "the content of the extension is not valid")
      end
    else
      add_rest(item, f["extension.content"], tvb, from, length)
      if tag == 1 or tag == 2 then
        item:add_proto_expert_info(malformed, "the content of the extension is not valid")
      end
    end
    at, entries = to, entries + 1
  end
  if at < stop and entries < EXTENSIONS_MAX then add_rest(tree, f["padding"], tvb, at, stop - at) end
end

-- Shows a description, and remembers its interface. Returns the name of the interface and the digest.
local function add_description(tree, tvb)
  local interface, digest, canonical, count, at
  local function give_up()
    tree:add_proto_expert_info(malformed, "the description ends too early")
  end
  at, interface = add_text(tree, tvb, 0, f["description.interface"])
  if not at or at + 20 > tvb:len() then return give_up() end
  digest = tvb:raw(at + 4, 16)
  at = add_all(tree, tvb, at, { { f["description.version"], 4 }, { f["description.digest"], 16 } })
  at, canonical = add_text(tree, tvb, at, f["description.text"])
  if not at then return give_up() end
  learn(digest, interface, canonical)
  local function add_texts(number, each)
    if not at or at + 4 > tvb:len() then return false end
    count = tvb:range(at, 4):le_uint()
    tree:add_le(number, tvb:range(at, 4))
    at = at + 4
    for i = 1, count do
      if i > SHOWN_MAX then
        tree:add_proto_expert_info(not_shown, "only the first texts are shown")
        return false
      end
      at = add_text(tree, tvb, at, each)
      if not at then
        give_up()
        return false
      end
    end
    return true
  end
  if add_texts(f["description.docs"], f["description.doc"]) then
    at = add_all(tree, tvb, at, {
      { f["description.process"], 4 }, { f["description.age"], 8 }, { f["description.bindings"], 4 },
    })
    if not at then
      give_up()
    elseif add_texts(f["description.listens"], f["description.endpoint"]) then
      if not add_all(tree, tvb, at, { { f["description.network"], 8 } }) then give_up() end
    end
  end
  return shown(interface), digest
end

-- Calls `each` for the records of `tvb` from `at` on: with the tree of the record, the offset of the record
-- and the number of bytes after its header. `size_at` is the offset of this number in the header. Returns how
-- many records there are.
local function each_record(tree, field, tvb, at, size_at, each)
  local count = 0
  while at < tvb:len() do
    if at + RECORD_HEADER_BYTES > tvb:len() then
      tree:add_proto_expert_info(malformed, "the header of a record is incomplete")
      break
    end
    local size = tvb:range(at + size_at, 4):le_uint()
    if at + RECORD_HEADER_BYTES + size > tvb:len() then
      tree:add_proto_expert_info(malformed, "a record is longer than the bytes that are left")
      size = tvb:len() - at - RECORD_HEADER_BYTES
    end
    count = count + 1
    local stop = padded(at + RECORD_HEADER_BYTES + size)
    if count <= SHOWN_MAX then
      each(tree:add(field, tvb:range(at, math.min(stop, tvb:len()) - at)), at, size)
    elseif count == SHOWN_MAX + 1 then
      tree:add_proto_expert_info(not_shown, "only the first records are shown")
    end
    at = stop
  end
  return count
end

local function add_batch(tree, tvb, bound)
  if tvb:len() < RECORD_HEADER_BYTES then
    tree:add_proto_expert_info(malformed, "the header of the batch is incomplete")
    return "an incomplete batch"
  end
  add_all(tree, tvb, 0, { { f["batch.token"], 16 }, { f["padding"], 16 } })
  local names, one_way = {}, 0
  local count = each_record(tree, f["batch.record"], tvb, 32, 24, function(item, at, size)
    local kind, procedure = tvb:range(at + 8, 4):le_uint(), tvb:range(at + 12, 4):le_uint()
    local about, method = title(procedure, bound and bound.digest)
    item:append_text(": " .. (BATCH_KINDS[kind] or "unknown"))
    add_all(item, tvb, at, {
      { f["batch.number"], 8 }, { f["batch.kind"], 4 }, { f["batch.procedure"], 4 }, { f["batch.head"], 4 },
      { f["batch.copied"], 4 }, { f["batch.total"], 4 }, { f["batch.left"], 4 },
    })
    if method then concluded(item, f["method"], nil, method) end
    add_rest(item, f["batch.message"], tvb, at + 32, size)
    if not BATCH_KINDS[kind] then
      item:add_proto_expert_info(malformed, "there is no record of kind " .. kind)
    end
    if kind == 3 then one_way = one_way + 1 end
    if (kind == 1 or kind == 3) and #names < 3 then names[#names + 1] = about end
  end)
  local which = one_way > 0 and "one-way call" or "record"
  return plural(count, which) .. (#names > 0 and ": " .. table.concat(names, ", ") or "")
    .. (count > #names and #names > 0 and ", ..." or "")
end

local function add_batch_result(tree, tvb)
  if tvb:len() < RECORD_HEADER_BYTES then
    tree:add_proto_expert_info(malformed, "the header of the batch's result is incomplete")
    return
  end
  add_flags(tree, tvb, 0, 4, f["batch.flags"], { f["batch.flags.async"] })
  add_all(tree, tvb, 4, {
    { f["batch.pending"], 4 }, { f["batch.slowest"], 4 }, { f["batch.slowest_us"], 4 },
    { f["batch.failed"], 4 }, { f["batch.not_executed"], 4 }, { f["padding"], 8 },
  })
  return each_record(tree, f["batch.record"], tvb, 32, 20, function(item, at, size)
    add_all(item, tvb, at, {
      { f["batch.number"], 8 }, { f["batch.answer"], 4 }, { f["batch.head_at"], 4 },
      { f["batch.head"], 4 }, { f["batch.total"], 4 }, { f["padding"], 8 },
    })
    add_rest(item, f["batch.message"], tvb, at + 32, size)
  end)
end

-- Shows the records of streams. Returns how many there are, and the texts of the first ones.
local function add_stream_records(tree, tvb)
  local names = {}
  local count = each_record(tree, f["streams.record"], tvb, 32, 8, function(item, at, size)
    local kind, items = tvb:range(at, 4):le_uint(), tvb:range(at + 12, 4):le_uint()
    add_all(item, tvb, at, {
      { f["streams.kind"], 4 }, { f["streams.stream"], 4 }, { f["streams.bytes"], 4 },
      { f["streams.items"], 4 }, { f["streams.credit"], 8 }, { f["streams.count"], 8 },
    })
    add_rest(item, f[kind == 4 and "streams.reason" or "streams.content"], tvb, at + 32, size)
    local name = STREAM_KINDS[kind]
    if not name then
      item:add_proto_expert_info(malformed, "there is no record of kind " .. kind)
      name = "unknown record"
    end
    if kind == 1 then name = plural(items, "item") end
    item:append_text(": " .. name)
    if #names < 3 then
      names[#names + 1] = name .. " of stream " .. tvb:range(at + 4, 4):le_uint()
    end
  end)
  if count > #names then names[#names + 1] = "..." end
  return count, table.concat(names, ", ")
end

local function add_streams(tree, tvb)
  if tvb:len() < RECORD_HEADER_BYTES then
    tree:add_proto_expert_info(malformed, "the header of the message with streams is incomplete")
    return
  end
  add_all(tree, tvb, 0, { { f["streams.token"], 16 }, { f["streams.number"], 8 } })
  add_flags(tree, tvb, 24, 4, f["streams.flags"], { f["streams.flags.open"], f["streams.flags.first"] })
  tree:add(f["padding"], tvb:range(28, 4))
  local count, names = add_stream_records(tree, tvb)
  return count > 0 and names or "nothing new"
end

local function add_streams_result(tree, tvb)
  if tvb:len() < RECORD_HEADER_BYTES then
    tree:add_proto_expert_info(malformed, "the header of the result with streams is incomplete")
    return
  end
  add_all(tree, tvb, 0, { { f["streams.number"], 8 }, { f["padding"], 24 } })
  local count, names = add_stream_records(tree, tvb)
  return count > 0 and names or "nothing new"
end

-- Returns a range of `tvb` as a new one, or nil if it is empty.
local function part(tvb, at, size)
  size = math.min(size, tvb:len() - at)
  if at < 0 or size <= 0 then return nil end
  return tvb:range(at, size):tvb()
end

-- Shows the message of a call, whose first `head` bytes are the head. Returns a text about the contents of
-- batches and streams.
local function add_call_message(tree, tvb, head, procedure, bound)
  head = math.min(head, tvb:len())
  local from = padded(head)
  add_rest(tree, f["head"], tvb, 0, head)
  if head < from then add_rest(tree, f["padding"], tvb, head, from - head) end
  if procedure == BATCH or procedure == STREAMS then
    local inner = part(tvb, from, tvb:len())
    if not inner then
      tree:add_proto_expert_info(malformed, "the records are missing")
      return nil
    end
    if procedure == BATCH then return add_batch(tree, inner, bound) end
    return add_streams(tree, inner)
  end
  if from < tvb:len() then add_rest(tree, f["blocks"], tvb, from) end
end

-- Shows the message of a reply. Returns a text about it, and the digest if it is a description.
local function add_reply_message(tree, tvb, answer, head_at, head, procedure)
  if answer == 2 or answer == 3 then
    if tvb:len() < 8 then
      tree:add_proto_expert_info(malformed, "the reason of the refusal is missing")
      return nil
    end
    local kind = tvb:range(0, 4):le_uint()
    local item = tree:add_le(f["error.kind"], tvb:range(0, 4))
    local _, reason = add_text(tree, tvb, 4, f["error.text"])
    if not reason then
      tree:add_proto_expert_info(malformed, "the reason of the refusal ends too early")
    end
    local about = (ERROR_KINDS[kind] or "unknown error " .. kind) .. ": " .. shown(reason or "")
    item:add_proto_expert_info(refused, about)
    return about
  end
  if answer == 0 and procedure == DESCRIBE then
    local inner = part(tvb, head_at, head)
    if not inner then
      tree:add_proto_expert_info(malformed, "the description is missing")
      return nil
    end
    return add_description(tree, inner)
  end
  if answer == 0 and (procedure == BATCH or procedure == STREAMS) then
    local filled = tvb:len() >= 4 and tvb:range(0, 4):le_uint() or 0
    add_rest(tree, f["table"], tvb, 0, 4)
    add_rest(tree, f["padding"], tvb, 4, 28)
    local inner = part(tvb, 32, filled)
    if not inner then
      tree:add_proto_expert_info(malformed, "the records are missing")
      return nil
    end
    if procedure == STREAMS then return add_streams_result(tree, inner) end
    local count = add_batch_result(tree, inner)
    return count and plural(count, "record")
  end
  if head_at > 0 then add_rest(tree, f["blocks"], tvb, 0, head_at) end
  if head_at < tvb:len() then
    add_rest(tree, f["head"], tvb, head_at, head)
    if head_at + head < tvb:len() then add_rest(tree, f["blocks"], tvb, head_at + head) end
  end
end

------------------------------------------------------------------------------------------------------------
-- The packet exchange

-- Reads the fields of a header of this version.
local function read_header(head)
  return {
    kind = string.byte(head, 4), handle = head:sub(9, 24), sequence = word(head, 24),
    key = head:sub(9, 28),
    flags = half(head, 28), what = word(head, 32), total = word(head, 36), head = word(head, 40),
    at = word(head, 44), fragment = word(head, 48), piece = half(head, 52) * 16,
    credits = half(head, 54), payload_check = word(head, 56), extensions = half(head, 60),
  }
end

local function is_piece(piece) return piece >= 512 and piece <= 65440 end
local function carries(kind) return kind == CALL or kind == RESULT end
local function binds_by(kind) return kind >= HELLO and kind <= UNBOUND end
local function is_report(kind) return kind == HAVE_CALL or kind == HAVE_RESULT end

-- Returns how many fragments a message has.
local function fragments_of(h) return math.max(1, math.ceil(h.total / h.piece)) end

-- Returns the number of bytes that follow the header, or why the header is invalid. `left` is the number of
-- bytes that are there.
local function payload_of(h, left)
  if not PACKET_KINDS[h.kind] then return nil, "there is no packet of kind " .. h.kind end
  if band(h.flags, SEALED) ~= 0 then return left end
  if h.flags > KNOWN_FLAGS then return nil, "unknown flags are set" end
  if h.kind == SHAKE then return left end
  if carries(h.kind) then
    if h.total > 1073741824 then return nil, "the message is too large" end
    if h.kind == CALL and h.extensions + h.head > h.total then
      return nil, "the head is longer than the message"
    end
    if h.kind == CALL and h.at > h.total then return nil, "more bytes are copied than the message has" end
    if h.kind == RESULT and h.extensions + h.at + h.head > h.total then
      return nil, "the head ends after the message"
    end
    if not is_piece(h.piece) then return nil, "the size of fragments is invalid" end
    local count = fragments_of(h)
    if h.fragment >= count then return nil, "the message has only " .. plural(count, "fragment") end
    return h.fragment == 0 and h.total - (count - 1) * h.piece or h.piece
  end
  if binds_by(h.kind) then
    if band(h.flags, CHECKED) == 0 then return nil, "packets of this kind need a check of the payload" end
    return BIND_BODY_BYTES
  end
  if (is_report(h.kind) or h.kind == PROBE) and not is_piece(h.piece) then
    return nil, "the size of fragments is invalid"
  end
  if not is_report(h.kind) then return 0 end
  if left > BITMAP_BYTES_MAX then return nil, "the bitmap is longer than 512 bytes" end
  if (band(h.flags, CHECKED) ~= 0) ~= (left > 0) then
    return nil, "only a bitmap has a check of the payload, and each bitmap has one"
  end
  return left
end

-- Returns the call of a packet, which is remembered, and its number at the handle: 1 for the first call.
local function call_of(h)
  local call = recall(calls, h.key) or remember(calls, h.key, {})
  return call, (h.sequence - word(h.handle, 12)) % 4294967296
end

-- Shows the fields of the header that every version of the wire has. Returns whether the check is right.
local function add_common(tree, tvb, head)
  add_all(tree, tvb, 0, {
    { f["packet.magic"], 2 }, { f["packet.version"], 1 }, { f["packet.kind"], 1 },
  })
  local good = crc32c(head:sub(1, 4) .. "\0\0\0\0" .. head:sub(9, HEADER_BYTES)) == word(head, 4)
  local check = tree:add_le(f["packet.check"], tvb:range(4, 4))
  concluded(tree, f["packet.check.status"], tvb:range(4, 4), good and GOOD or BAD)
  if not good then check:add_proto_expert_info(bad_check, "the check of the header is wrong") end
  return good
end

local PACKET_FLAGS = {
  f["packet.flags.please"], f["packet.flags.resent"], f["packet.flags.checked"], f["packet.flags.all"],
  f["packet.flags.replied"], f["packet.flags.elsewhere"],
}

-- Shows the fields of a header, by the kind of the packet.
local function add_header(tree, tvb, h)
  local secret = binds_by(h.kind) and f["packet.nonce"] or f["packet.secret"]
  add_all(tree, tvb, 8, { { f["packet.place"], 4 }, { secret, 12 }, { f["packet.sequence"], 4 } })
  add_flags(tree, tvb, 28, 2, f["packet.flags"], PACKET_FLAGS)
  tree:add_le(f["packet.serial"], tvb:range(30, 2))
  if h.kind == REFUSED then
    add_all(tree, tvb, 36, { { f["packet.table"], 8 }, { f["packet.generation"], 4 } })
  elseif carries(h.kind) then
    local at = h.kind == CALL and f["packet.copied"] or f["packet.head_at"]
    add_all(tree, tvb, 36, {
      { f["packet.total"], 4 }, { f["packet.head"], 4 }, { at, 4 }, { f["packet.fragment"], 4 },
    })
    if is_piece(h.piece) then concluded(tree, f["packet.fragments"], nil, fragments_of(h)) end
  elseif is_report(h.kind) then
    tree:add_le(f["packet.received"], tvb:range(36, 4))
    tree:add_le(f["packet.next"], tvb:range(48, 4))
  end
  if h.kind <= PROBE then
    tree:add(f["packet.piece"], tvb:range(52, 2), h.piece)
    tree:add_le(f["packet.credits"], tvb:range(54, 2))
  end
  if band(h.flags, CHECKED) ~= 0 then tree:add_le(f["packet.payload_check"], tvb:range(56, 4)) end
  if carries(h.kind) then tree:add_le(f["packet.extensions"], tvb:range(60, 2)) end
  tree:add_le(f["packet.echo"], tvb:range(62, 2))
end

-- Compares the payload with its check. Returns whether it is wrong.
local function check_payload(tree, tvb, h, size, is_whole)
  if band(h.flags, CHECKED) == 0 then return false end
  local status = UNVERIFIED
  if is_whole and peregrine.prefs.verify then
    local data = size > 0 and tvb:raw(HEADER_BYTES, size) or ""
    status = crc32c(data) == h.payload_check and GOOD or BAD
  end
  local item = concluded(tree, f["packet.payload_check.status"], tvb:range(56, 4), status)
  if status == BAD then item:add_proto_expert_info(bad_check, "the check of the payload is wrong") end
  return status == BAD
end

-- The bodies of the packets that bind. Each function returns a text about the packet.
local BODIES = {}

BODIES[HELLO] = function(tree, body)
  local asks = band(body:range(0, 4):le_uint(), 1) ~= 0
  add_flags(tree, body, 0, 4, f["bind.flags"], { f["bind.flags.link"] })
  return "Hello" .. (asks and ": asks where the server is on the link" or "")
end

BODIES[COOKIE] = function(tree, body)
  tree:add(f["bind.cookie"], body:range(0, 16))
  local is_there = band(body:range(16, 4):le_uint(), 1) ~= 0
  add_flags(tree, body, 16, 4, f["bind.flags"], { f["bind.flags.link"] })
  if is_there then
    tree:add(f["bind.hardware"], body:range(20, 6))
    tree:add(f["bind.endpoint"], body:range(26, 2))
  end
  return "Cookie" .. (is_there and ": the server is on the link" or "")
end

BODIES[BIND] = function(tree, body, h)
  add_all(tree, body, 0, { { f["bind.cookie"], 16 }, { f["bind.digest"], 16 } })
  add_flags(tree, body, 32, 4, f["bind.flags"], { f["bind.flags.any"], f["bind.flags.payload_checks"] })
  tree:add_le(f["bind.handles"], body:range(36, 2))
  tree:add(f["bind.piece"], body:range(38, 2), body:range(38, 2):le_uint() * 16)
  add_all(tree, body, 40, {
    { f["bind.result_bytes"], 4 }, { f["bind.credits"], 2 }, { f["bind.name_bytes"], 2 },
  })
  local size = body:range(46, 2):le_uint()
  if size < 1 or size > 64 then
    tree:add_proto_expert_info(malformed, "a name has 1 to 64 bytes")
    return "Bind to an invalid name"
  end
  tree:add(f["bind.name"], body:range(48, size))
  local name = shown(body:raw(48, size))
  remember(binds, h.handle:sub(5), { name = name })
  return "Bind to `" .. name .. "`"
end

BODIES[BOUND] = function(tree, body, h)
  add_all(tree, body, 0, { { f["bind.table"], 8 }, { f["bind.epoch"], 8 }, { f["bind.digest"], 16 } })
  add_flags(tree, body, 32, 4, f["bind.flags"],
    { f["bind.flags.payload_checks"], f["bind.flags.big_endian"] })
  tree:add_le(f["bind.handles"], body:range(36, 2))
  tree:add(f["bind.piece"], body:range(38, 2), body:range(38, 2):le_uint() * 16)
  add_all(tree, body, 40, { { f["bind.call_bytes"], 4 }, { f["bind.credits"], 2 } })
  local count = body:range(36, 2):le_uint()
  if count > 16 then
    tree:add_proto_expert_info(malformed, "a server grants at most 16 handles")
    count = 16
  end
  local asked = recall(binds, h.handle:sub(5))
  local bound = { name = asked and asked.name, digest = body:raw(16, 16) }
  for i = 0, count - 1 do
    local at = 48 + 20 * i
    add_all(tree, body, at, {
      { f["bind.place"], 4 }, { f["bind.generation"], 4 }, { f["bind.secret"], 12 },
    })
    remember(handles, body:raw(at, 4) .. body:raw(at + 8, 12), bound)
  end
  if bound.name then concluded(tree, f["export"], nil, bound.name) end
  local known = recall(interfaces, bound.digest)
  if known then concluded(tree, f["interface"], nil, known.name) end
  return "Bound" .. (bound.name and " to `" .. bound.name .. "`" or "") .. ": " .. plural(count, "handle")
end

BODIES[UNBOUND] = function(tree, body)
  local kind, size = body:range(0, 4):le_uint(), body:range(4, 2):le_uint()
  local item = tree:add_le(f["error.kind"], body:range(0, 4))
  local reason = ""
  if 6 + size > body:len() then
    tree:add_proto_expert_info(malformed, "the reason is longer than the packet")
  elseif size > 0 then
    tree:add(f["error.text"], body:range(6, size))
    reason = shown(body:raw(6, size))
  end
  local about = (ERROR_KINDS[kind] or "unknown error " .. kind) .. ": " .. reason
  item:add_proto_expert_info(refused, about)
  return "Bind refused: " .. about
end

-- Forgets the fragments of the oldest messages until `more` further bytes are within the limit.
local function make_room(more)
  local limit = peregrine.prefs.memory * 1048576
  while kept.bytes + more > limit and kept.first <= kept.last do
    local oldest = kept[kept.first]
    kept[kept.first] = nil
    kept.first = kept.first + 1
    kept.bytes = kept.bytes - oldest.bytes
    oldest.parts, oldest.data, oldest.bytes, oldest.is_forgotten = nil, nil, 0, true
  end
  return kept.bytes + more <= limit
end

-- The memory that a message takes besides its fragments, by estimate.
local MESSAGE_COST = 512

-- Adds a fragment to its message. Returns the message, and its bytes if this packet completes it.
local function assemble(pinfo, tvb, h, size)
  local key = table.concat({ h.kind, h.key, h.piece, h.total }, ":")
  local message = recall(messages, key)
  if not message then
    make_room(MESSAGE_COST)
    message = remember(messages, key, { parts = {}, missing = fragments_of(h), bytes = MESSAGE_COST })
    kept.last = kept.last + 1
    kept[kept.last] = message
    kept.bytes = kept.bytes + MESSAGE_COST
  end
  local place = pinfo.number .. ":" .. h.fragment
  -- Making room may forget this message.
  if message.parts and not message.parts[h.fragment] and make_room(size) and message.parts then
    message.parts[h.fragment] = size > 0 and tvb:raw(HEADER_BYTES, size) or ""
    message.bytes, kept.bytes = message.bytes + size, kept.bytes + size
    message.missing = message.missing - 1
    if message.missing == 0 then
      message.data, message.parts = table.concat(message.parts, "", 0, fragments_of(h) - 1), nil
      message.place, message.done_in = place, pinfo.number
    end
  end
  return message, message.place == place and message.data or nil
end

-- Shows the message of a call or result, or the part of it that this packet has. Returns a text about it.
local function add_message(tree, pinfo, tvb, h, size, call, bound)
  local body
  if fragments_of(h) == 1 then
    body = part(tvb, HEADER_BYTES, size)
  else
    add_rest(tree, f["packet.payload"], tvb, HEADER_BYTES, size)
    if not peregrine.prefs.reassemble then return nil end
    local message, data = assemble(pinfo, tvb, h, size)
    if not data then
      if message.done_in and message.done_in ~= pinfo.number then
        concluded(tree, f["reassembled_in"], nil, message.done_in)
      elseif message.is_forgotten then
        tree:add_proto_expert_info(not_reassembled, "the memory for fragments is used up")
      end
      return nil
    end
    concluded(tree, f["reassembled_length"], nil, #data)
    body = ByteArray.new(data, true):tvb("Reassembled message")
  end
  if h.kind == RESULT then note_reply(call, pinfo) end
  if not body then
    -- A message without bytes. Some procedures need some.
    if h.kind == RESULT and h.what ~= 0 and h.what ~= 1 and h.what ~= 4 then
      tree:add_proto_expert_info(malformed, "the reason of the refusal is missing")
    end
    return nil
  end
  add_extensions(tree, body, 0, h.extensions)
  local message = part(body, h.extensions, body:len())
  if not message then return nil end
  if h.kind == CALL then
    return add_call_message(tree, message, h.head, h.what, bound)
  end
  return add_reply_message(tree, message, h.what, h.at, h.head, call.procedure)
end

-- Returns a text about the positions that a report acknowledges. The position p is fragment p + 1, and
-- fragment 0 has the last one.
local function positions(h)
  local about
  if h.fragment == 0 then
    about = "nothing yet"
  elseif h.fragment == 1 then
    about = "fragment 1"
  else
    about = "fragments 1 to " .. h.fragment
  end
  local more = h.total - h.fragment
  return about .. (more > 0 and " and " .. more .. " later" or "")
end

-- Returns a text about a packet of a call.
local function summary(h, number, about, contents)
  local call = "call " .. number .. (about and " of " .. about or "")
  local has = function(flags) return band(h.flags, flags) ~= 0 end
  if carries(h.kind) then
    local said = h.kind == CALL and "Call" .. call:sub(5)
      or "Reply to " .. call .. ": " .. (ANSWERS[h.what] or "unknown answer " .. h.what)
    local count = is_piece(h.piece) and fragments_of(h) or 1
    if count > 1 then said = said .. ", fragment " .. h.fragment .. " of " .. count end
    if contents then said = said .. " (" .. contents .. ")" end
    return said .. (has(RESENT) and " [retransmission]" or "")
  end
  if h.kind == HAVE_CALL then
    if has(ALL) then
      return "Acknowledgement of " .. call .. (has(REPLIED) and ", whose result was sent" or "")
    elseif h.fragment == 0 and h.credits == 0 then
      return "No room yet for " .. call
    end
    return "Acknowledgement of " .. call .. ": " .. positions(h)
  elseif h.kind == HAVE_RESULT then
    local said = has(ALL) and "" or ": " .. positions(h)
    local what = has(PLEASE) and "Question about" or "Acknowledgement of"
    return what .. " the reply to " .. call .. said
  elseif h.kind == PROBE then
    return "Probe of " .. call
  elseif h.kind == QUIT then
    return "Cancellation of " .. call
  elseif h.kind == LET_GO then
    return "No part of " .. call .. " runs"
  elseif h.kind == REFUSED then
    local why = has(ELSEWHERE) and "another address bound the handle" or "unknown handle"
    return "Refusal of " .. call .. ": " .. why
  elseif h.kind == BYE then
    return "Goodbye: the client does not need the handle any more"
  end
  return "Question: does the caller of " .. call .. " still wait?"
end

-- Dissects a packet that begins at byte 0 of `tvb`. `reported` is the number of bytes that the datagram has
-- from there on, of which the capture may lack some. Returns how many bytes the packet has.
local function dissect_packet(tvb, pinfo, root, reported)
  local left = reported - HEADER_BYTES
  local version = tvb:len() > 2 and tvb:range(2, 1):uint()
  if tvb:len() < HEADER_BYTES then
    local tree = root:add(peregrine, tvb:range(), "Peregrine, an incomplete packet")
    add_all(tree, tvb, 0, {
      { f["packet.magic"], 2 }, { f["packet.version"], 1 }, { f["packet.kind"], 1 },
      { f["packet.check"], 4 }, { f["packet.place"], 4 }, { f["packet.secret"], 12 },
      { f["packet.sequence"], 4 },
    })
    if left < 0 then
      tree:add_proto_expert_info(malformed, "the packet is shorter than a header")
    else
      tree:add_proto_expert_info(cut_short)
    end
    set_columns(pinfo, "Incomplete packet")
    return reported
  end
  local head = tvb:raw(0, HEADER_BYTES)
  local h = read_header(head)
  local name = PACKET_KINDS[h.kind] or "unknown kind"
  if version ~= PACKET_VERSION then
    local tree = root:add(peregrine, tvb:range(), "Peregrine " .. name .. ", version " .. version)
    add_common(tree, tvb, head)
    tree:add(f["packet.nonce"], tvb:range(12, 12))
    tree:add_le(f["packet.serial"], tvb:range(30, 2))
    tree:add_proto_expert_info(other_version, "version " .. version .. " of the packet exchange")
    local about = name .. " of version " .. version
    local body = part(tvb, HEADER_BYTES, BIND_BODY_BYTES)
    if h.kind == UNBOUND and body and body:len() == BIND_BODY_BYTES then
      about = about .. ": " .. BODIES[UNBOUND](tree, body, h)
    end
    set_columns(pinfo, about)
    return reported
  end
  local size, why = payload_of(h, left)
  if size and size > left then size, why = nil, "the packet is shorter than its header says" end
  local length = HEADER_BYTES + (size or left)
  local there = math.min(length, tvb:len())
  local tree = root:add(peregrine, tvb:range(0, there), "Peregrine " .. name)
  if band(h.flags, SEALED) ~= 0 then
    add_all(tree, tvb, 0, {
      { f["packet.magic"], 2 }, { f["packet.version"], 1 }, { f["packet.kind"], 1 },
    })
    add_all(tree, tvb, 8, {
      { f["packet.place"], 4 }, { f["packet.secret"], 12 }, { f["packet.sequence"], 4 },
    })
    add_rest(tree, f["packet.payload"], tvb, HEADER_BYTES)
    set_columns(pinfo, name .. ", sealed")
    return length
  end
  local is_good = add_common(tree, tvb, head)
  add_header(tree, tvb, h)
  if not size then
    tree:add_proto_expert_info(malformed, why)
    add_rest(tree, f["packet.payload"], tvb, HEADER_BYTES)
    set_columns(pinfo, name .. ", malformed: " .. why)
    return length
  end
  local is_whole = there == length
  if not is_whole then tree:add_proto_expert_info(cut_short) end
  local is_damaged = check_payload(tree, tvb, h, size, is_whole) or not is_good
  if binds_by(h.kind) then
    local about = name
    if is_whole then
      about = BODIES[h.kind](tree, tvb:range(HEADER_BYTES, size):tvb(), h)
    else
      add_rest(tree, f["packet.payload"], tvb, HEADER_BYTES)
    end
    tree:append_text(", " .. about)
    set_columns(pinfo, about .. (is_damaged and " [damaged]" or ""))
    return length
  end
  if h.kind == SHAKE then
    add_rest(tree, f["packet.payload"], tvb, HEADER_BYTES, size)
    set_columns(pinfo, "Handshake of TLS" .. (is_damaged and " [damaged]" or ""))
    return length
  end
  -- Receivers drop a damaged packet. So nothing is concluded from it.
  if is_damaged then
    add_rest(tree, f["packet.payload"], tvb, HEADER_BYTES, size)
    set_columns(pinfo, name .. " [damaged]")
    return length
  end
  local bound = recall(handles, h.handle)
  local call, number = call_of(h)
  if h.kind == CALL and not call.procedure then call.procedure = h.what end
  local about, contents
  if h.kind ~= BYE then
    concluded(tree, f["call"], nil, number)
    about = add_procedure(tree, h.kind == CALL and tvb:range(32, 4), call.procedure, bound)
  elseif bound and bound.name then
    concluded(tree, f["export"], nil, bound.name)
  end
  if h.kind == RESULT then tree:add_le(f["answer"], tvb:range(32, 4)) end
  if band(h.flags, RESENT) ~= 0 then tree:add_proto_expert_info(retransmitted) end
  if h.kind == CALL then note_request(call, pinfo) end
  if carries(h.kind) and is_whole then
    contents = add_message(tree, pinfo, tvb, h, size, call, bound)
  elseif size > 0 then
    add_rest(tree, is_report(h.kind) and f["packet.bitmap"] or f["packet.payload"], tvb, HEADER_BYTES, size)
  end
  if h.kind ~= BYE then add_links(tree, pinfo, call, h.kind == RESULT) end
  if h.kind == REFUSED then tree:add_proto_expert_info(refused, "the server does not accept the handle") end
  local said = summary(h, number, about, contents)
  tree:append_text(", " .. said)
  set_columns(pinfo, said)
  return length
end

-- Returns whether bytes look like a packet. `is_sure` says that a port or the user has chosen this protocol,
-- so that damaged packets are shown, too.
local function is_packet(tvb, at, is_sure)
  if at + 4 > tvb:len() or tvb:raw(at, 2) ~= "PX" then return false end
  if is_sure then return true end
  if at + HEADER_BYTES > tvb:len() then return false end
  local head = tvb:raw(at, HEADER_BYTES)
  return crc32c(head:sub(1, 4) .. "\0\0\0\0" .. head:sub(9)) == word(head, 4)
end

-- Dissects the packets of a datagram. There is one, but a capture on the sending machine may show several in
-- one datagram, which the interface or the kernel has divided later (segmentation offload).
local function dissect_packets(tvb, pinfo, root, reported)
  local at = 0
  while at < tvb:len() do
    if at > 0 and not is_packet(tvb, at, false) then
      local rest = root:add(peregrine, tvb:range(at), "Peregrine"):add(f["unreadable"], tvb:range(at))
      rest:add_proto_expert_info(malformed, "bytes follow the packet")
      break
    end
    at = at + dissect_packet(tvb:range(at):tvb(), pinfo, root, reported - at)
  end
  return tvb:len()
end

function peregrine.dissector(tvb, pinfo, root)
  if not is_packet(tvb, 0, true) then return 0 end
  return dissect_packets(tvb, pinfo, root, tvb:reported_len())
end

peregrine:register_heuristic("udp", function(tvb, pinfo, root)
  if not is_packet(tvb, 0, false) then return false end
  pinfo.conversation = peregrine
  dissect_packets(tvb, pinfo, root, tvb:reported_len())
  return true
end)

function over_ethernet.dissector(tvb, pinfo, root)
  -- Other experiments use this type of frame, too. A damaged frame is shown if its version and kind are known.
  local is_known = tvb:len() >= 8 and tvb:range(6, 1):uint() == PACKET_VERSION
    and PACKET_KINDS[tvb:range(7, 1):uint()] ~= nil
  if not is_packet(tvb, 4, is_known) then return 0 end
  local tree = root:add(over_ethernet, tvb:range(0, 4), "Peregrine over raw Ethernet")
  tree:add(f["packet.destination"], tvb:range(0, 2))
  tree:add(f["packet.source"], tvb:range(2, 2))
  return 4 + dissect_packets(tvb:range(4):tvb(), pinfo, root, tvb:reported_len() - 4)
end

------------------------------------------------------------------------------------------------------------
-- The stream path

local stream_of = Field.new("tcp.stream")

-- Returns the number of the TCP stream, and whether a message of it was seen.
local function connection()
  local found = { stream_of() }
  local stream = #found > 0 and found[#found].value or -1
  return stream, recall(connections, stream) ~= nil
end

-- Shows the body of a message, by its kind. Each function gets the header, the number of the stream, the call
-- or question, and the name of the procedure. It returns a text about the message.
local CONTENTS = {}

-- Shows fields that a message must have. Returns where the next byte is, or nil.
local function add_needed(tree, body, layout)
  local at = body and add_all(tree, body, 0, layout)
  if not at then tree:add_proto_expert_info(malformed, "the body ends too early") end
  return at
end

CONTENTS[M_BIND] = function(tree, body, _, _, asked)
  local at = add_needed(tree, body, {
    { f["bind.digest"], 16 }, { f["bind.given"], 4 }, { f["bind.representation"], 4 },
    { f["bind.message_bytes"], 8 }, { f["bind.calls"], 4 }, { f["bind.process"], 4 },
  })
  if not at then return "Bind" end
  local _, name = add_text(tree, body, at, f["bind.name"])
  if not name then
    tree:add_proto_expert_info(malformed, "the name ends too early")
    return "Bind"
  end
  asked.name = shown(name)
  if body:range(16, 4):le_uint() ~= 0 then asked.digest = body:raw(0, 16) end
  return "Bind to `" .. asked.name .. "`"
end

CONTENTS[M_DESCRIBE] = function(tree, body, _, _, asked)
  if not body then
    tree:add_proto_expert_info(malformed, "the name is missing")
    return "Describe"
  end
  tree:add(f["bind.name"], body:range())
  asked.name = shown(body:raw(0, math.min(body:len(), 64)))
  return "Describe `" .. asked.name .. "`"
end

CONTENTS[M_BOUND] = function(tree, body, _, stream, asked)
  local at = add_needed(tree, body, {
    { f["bind.epoch"], 8 }, { f["message.binding"], 4 }, { f["bind.representation"], 4 },
    { f["bind.message_bytes"], 8 }, { f["bind.calls"], 4 },
  })
  if not at then return "Bound" end
  local number, name = body:range(8, 4):le_uint(), asked.name
  local digest = asked.digest or recall(digests, stream .. ":" .. (name or ""))
  remember(bindings, stream .. ":" .. number, { name = name, digest = digest })
  if name then concluded(tree, f["export"], nil, name) end
  return "Bound" .. (name and " to `" .. name .. "`" or "") .. ": binding " .. number
end

CONTENTS[M_REFUSED] = function(tree, body, h)
  local at = add_needed(tree, body, { { f["error.kind"], 4 } })
  if not at then return "Refused" end
  local kind = body:range(0, 4):le_uint()
  local _, reason = add_text(tree, body, at, f["error.text"])
  if not reason then tree:add_proto_expert_info(malformed, "the reason ends too early") end
  local about = (ERROR_KINDS[kind] or "unknown error " .. kind) .. ": " .. shown(reason or "")
  tree:add_proto_expert_info(refused, about)
  return (h.number == 0 and "Connection refused: " or "Refused: ") .. about
end

CONTENTS[M_DESCRIPTION] = function(tree, body, _, stream, asked)
  if not body then
    tree:add_proto_expert_info(malformed, "the description is missing")
    return "Description"
  end
  local interface, digest = add_description(tree, body)
  if digest and asked.name then remember(digests, stream .. ":" .. asked.name, digest) end
  return "Description" .. (asked.name and " of `" .. asked.name .. "`" or "")
    .. (interface and ": interface `" .. interface .. "`" or "")
end

CONTENTS[M_UNBIND] = function(_, _, h) return "Unbind binding " .. h.binding end
CONTENTS[M_REVOKED] = function(_, _, h) return "The export of binding " .. h.binding .. " was withdrawn" end
CONTENTS[M_GOODBYE] = function() return "Goodbye: calls without a reply were not executed" end

CONTENTS[M_ABANDON] = function(_, _, h)
  if h.number == 0 then return "Keep-alive" end
  return "Cancellation of call " .. h.number
end

CONTENTS[M_CALL] = function(tree, body, h, _, call, about)
  local contents
  if h.head > h.body or h.at > h.body then
    tree:add_proto_expert_info(malformed, "the head or the copied bytes are longer than the body")
  elseif body then
    contents = add_call_message(tree, body, h.head, h.what, call.bound)
  end
  return "Call " .. h.number .. " of " .. about .. (contents and " (" .. contents .. ")" or "")
end

CONTENTS[M_REPLY] = function(tree, body, h, _, call, about)
  local contents
  if h.at + h.head > h.body then
    tree:add_proto_expert_info(malformed, "the head ends after the body")
  elseif body then
    contents = add_reply_message(tree, body, h.what, h.at, h.head, call.procedure)
  end
  return "Reply to call " .. h.number .. (about and " of " .. about or "") .. ": "
    .. (ANSWERS[h.what] or "unknown answer " .. h.what) .. (contents and " (" .. contents .. ")" or "")
end

-- Returns the call or question of a message. The numbers of a connection are used again, so the result for
-- each message is remembered.
local function call_of_message(pinfo, tvb, h, stream)
  local place = table.concat({ pinfo.number, tvb:offset(), h.kind, h.number }, ":")
  local call = recall(notes, place)
  if call then return call end
  local begins = h.kind == M_CALL or h.kind == M_BIND or h.kind == M_DESCRIBE
  local key = stream .. ":" .. h.number
  call = not begins and recall(numbered, key)
  if not call then
    call = {}
    -- A message with number 0 has no answer.
    if h.number ~= 0 then remember(numbered, key, call) end
  end
  return remember(notes, place, call)
end

-- Dissects one message. `tvb` begins with it, and may end before it if the capture does not have all bytes.
local function dissect_message(tvb, pinfo, root, h)
  local length = math.min(h.length, tvb:len())
  local name = MESSAGE_KINDS[h.kind]
  local tree = root:add(peregrine, tvb:range(0, length), "Peregrine " .. (name or "unknown kind"))
  add_all(tree, tvb, 0, {
    { f["message.body"], 4 }, { f["message.kind"], 1 }, { f["message.version"], 1 },
    { f["message.magic"], 2 }, { f["message.number"], 4 },
  })
  if h.version ~= MESSAGE_VERSION then
    tree:add_proto_expert_info(other_version, "version " .. h.version .. " of the stream path")
    add_rest(tree, f["unreadable"], tvb, MESSAGE_HEADER_BYTES, length - MESSAGE_HEADER_BYTES)
    return set_columns(pinfo, (name or "Message") .. " of version " .. h.version)
  end
  if not name then
    tree:add_proto_expert_info(malformed, "there is no message of kind " .. h.kind)
    add_rest(tree, f["unreadable"], tvb, MESSAGE_HEADER_BYTES, length - MESSAGE_HEADER_BYTES)
    return set_columns(pinfo, "Malformed: unknown kind " .. h.kind)
  end
  local is_call, is_reply = h.kind == M_CALL, h.kind == M_REPLY
  if is_call or h.kind == M_UNBIND or h.kind == M_REVOKED then
    tree:add_le(f["message.binding"], tvb:range(12, 4))
  end
  local stream = connection()
  remember(connections, stream, true)
  local call = call_of_message(pinfo, tvb, h, stream)
  local about
  if is_call then
    if not call.procedure then
      call.procedure, call.bound = h.what, recall(bindings, stream .. ":" .. h.binding)
    end
    about = add_procedure(tree, tvb:range(16, 4), h.what, call.bound)
    note_request(call, pinfo)
    add_all(tree, tvb, 20, { { f["message.head"], 4 }, { f["message.copied"], 4 } })
  elseif is_reply then
    tree:add_le(f["answer"], tvb:range(16, 4))
    about = add_procedure(tree, nil, call.procedure, call.bound)
    note_reply(call, pinfo)
    add_all(tree, tvb, 20, { { f["message.head"], 4 }, { f["message.head_at"], 4 } })
  elseif h.kind == M_BIND or h.kind == M_DESCRIBE then
    note_request(call, pinfo)
  elseif h.kind == M_BOUND or h.kind == M_REFUSED or h.kind == M_DESCRIPTION then
    note_reply(call, pinfo)
  end
  tree:add_le(f["message.extensions"], tvb:range(28, 4))
  if is_call or is_reply or h.kind == M_ABANDON then concluded(tree, f["call"], nil, h.number) end
  if h.number ~= 0 then add_links(tree, pinfo, call, h.kind >= M_BOUND) end
  local whole = MESSAGE_HEADER_BYTES + padded(h.body)
  if h.length > length then
    tree:add_proto_expert_info(h.is_too_large and not_reassembled or cut_short)
    add_rest(tree, f["unreadable"], tvb, MESSAGE_HEADER_BYTES)
    return set_columns(pinfo, name .. " " .. h.number .. ", incomplete")
  end
  local said = CONTENTS[h.kind](tree, part(tvb, MESSAGE_HEADER_BYTES, h.body), h, stream, call, about)
  if whole > MESSAGE_HEADER_BYTES + h.body then
    add_rest(tree, f["padding"], tvb, MESSAGE_HEADER_BYTES + h.body, whole - MESSAGE_HEADER_BYTES - h.body)
  end
  if h.extensions > 0 then
    add_extensions(tree, tvb:range(whole, padded(h.extensions)):tvb(), 0, h.extensions)
    add_rest(tree, f["padding"], tvb, whole + h.extensions, length - whole - h.extensions)
  end
  tree:append_text(", " .. said)
  set_columns(pinfo, said)
end

-- Dissects the messages of a segment, and asks TCP for the rest of the last one.
local function dissect_messages(tvb, pinfo, root)
  local at, reported = 0, tvb:reported_len()
  local can_wait = peregrine.prefs.reassemble and pinfo.can_desegment > 0
  while at < tvb:len() do
    local left = tvb:len() - at
    local is_message = left < 8 or tvb:raw(at + 6, 2) == "Pg"
    if not is_message then
      if at == 0 and not select(2, connection()) then return 0 end
      local rest = root:add(peregrine, tvb:range(at), "Peregrine, continuation")
      rest:add(f["unreadable"], tvb:range(at)):add_proto_expert_info(not_aligned)
      set_columns(pinfo, "Continuation of a message")
      return tvb:len()
    end
    if left < MESSAGE_HEADER_BYTES then
      if can_wait and reported == tvb:len() then
        pinfo.desegment_offset, pinfo.desegment_len = at, DESEGMENT_ONE_MORE_SEGMENT
        return tvb:len()
      end
      local rest = root:add(peregrine, tvb:range(at), "Peregrine, an incomplete header")
      rest:add(f["unreadable"], tvb:range(at)):add_proto_expert_info(cut_short)
      set_columns(pinfo, "Incomplete header of a message")
      return tvb:len()
    end
    local head = tvb:raw(at, MESSAGE_HEADER_BYTES)
    local h = {
      body = word(head, 0), kind = string.byte(head, 5), version = string.byte(head, 6),
      number = word(head, 8), binding = word(head, 12), what = word(head, 16), head = word(head, 20),
      at = word(head, 24), extensions = word(head, 28),
    }
    h.length = MESSAGE_HEADER_BYTES
    if h.version == MESSAGE_VERSION and MESSAGE_KINDS[h.kind] then
      h.length = h.length + padded(h.body) + padded(h.extensions)
    else
      -- The length of such a message is not known.
      h.length = left
    end
    local missing = h.length - (reported - at)
    h.is_too_large = h.length > peregrine.prefs.memory * 1048576
    if missing > 0 and can_wait and not h.is_too_large then
      pinfo.desegment_offset, pinfo.desegment_len = at, missing
      return tvb:len()
    end
    dissect_message(tvb:range(at):tvb(), pinfo, root, h)
    at = at + h.length
  end
  return tvb:len()
end

-- Returns whether a segment at any port begins with a message.
local function is_message(tvb)
  if tvb:len() < 8 then return false end
  local head = tvb:raw(0, 8)
  if head:sub(7, 8) ~= "Pg" then return false end
  local kind, body = string.byte(head, 5), word(head, 0)
  if string.byte(head, 6) ~= MESSAGE_VERSION or not MESSAGE_KINDS[kind] then return false end
  if kind == M_BIND then return body >= 44 and body <= 128 end
  if kind == M_DESCRIBE then return body >= 1 and body <= 64 end
  if kind == M_UNBIND or kind == M_ABANDON or kind == M_REVOKED or kind == M_GOODBYE then return body == 0 end
  return true
end

function over_tcp.dissector(tvb, pinfo, root)
  return dissect_messages(tvb, pinfo, root)
end

over_tcp:register_heuristic("tcp", function(tvb, pinfo, root)
  if not is_message(tvb) then return false end
  pinfo.conversation = over_tcp
  dissect_messages(tvb, pinfo, root)
  return true
end)

------------------------------------------------------------------------------------------------------------
-- Ports

local ports = {}

-- Registers the dissectors at the ports of the preferences, and removes them from the ports before.
local function register(table_name, dissector, wanted)
  local before, dissectors = ports[table_name], DissectorTable.get(table_name)
  if before == wanted then return end
  if before and before ~= "" then dissectors:remove(before, dissector) end
  if wanted ~= "" then dissectors:add(wanted, dissector) end
  ports[table_name] = wanted
end

local function register_all()
  register("udp.port", peregrine, tostring(peregrine.prefs.udp_ports))
  register("tcp.port", over_tcp, tostring(peregrine.prefs.tcp_ports))
end
register_all()
peregrine.prefs_changed = register_all
DissectorTable.get("ethertype"):add(ETHER_TYPE, over_ethernet)
-- What TLS carries, if Wireshark has the keys (`tls.keylog_file`). The name is that of ALPN.
DissectorTable.get("tls.alpn"):add("peregrine/1", over_tcp)
