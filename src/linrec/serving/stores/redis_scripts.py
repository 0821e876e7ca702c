"""What Redis runs by itself, each script all or nothing."""

from __future__ import annotations

# KEYS: head, events, ids, users, forgotten, written. ARGV: user, version read, new version,
# snapshot or "", keep, digest of the user if forgotten ones are refused, when it was written, then
# time, item and id ("" for none) of each event. Members of the sorted set begin with the number of
# arrival, so that equal times keep that order. A snapshot is a field of the head, named by its
# model: the number of arrivals (16 digits), version (16) and events (16 digits) it was stored with,
# then itself.
COMMIT = """
local version = redis.call('HGET', KEYS[1], 'version')
if version == ARGV[3] then return 1 end  -- sent again because the reply was lost
if (version or '') ~= ARGV[2] then return 0 end
if ARGV[6] ~= '' and redis.call('SISMEMBER', KEYS[5], ARGV[6]) == 1 then return 0 end
local arrived = tonumber(redis.call('HGET', KEYS[1], 'arrived') or '0')
local newest = tonumber(redis.call('HGET', KEYS[1], 'newest') or '-inf')
local late = false
for at = 8, #ARGV, 3 do
  late = late or (newest ~= nil and tonumber(ARGV[at]) < newest)
  local member = string.format('%016d', arrived) .. ARGV[at + 1]
  redis.call('ZADD', KEYS[2], ARGV[at], member)
  if ARGV[at + 2] ~= '' then
    redis.call('HSET', KEYS[3], ARGV[at + 2], 1)
  end
  arrived = arrived + 1
end
local surplus = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[5])
if surplus > 0 then
  local popped = redis.call('ZPOPMIN', KEYS[2], surplus)
  for at = 1, #popped, 2 do
    local id = cjson.decode(string.sub(popped[at], 17))[2]
    if id ~= cjson.null and id ~= nil then redis.call('HDEL', KEYS[3], id) end
  end
end
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
local kept = redis.call('ZCARD', KEYS[2])
redis.call('HSET', KEYS[1], 'version', ARGV[3], 'arrived', arrived, 'events', kept,
  'newest', last[2] or '-inf')
local about = redis.call('HMGET', KEYS[1], 'version', 'arrived', 'events', 'newest')
redis.call('HSET', KEYS[1], 'checksum', redis.sha1hex(table.concat(about, ' ')))
redis.call('HDEL', KEYS[1], 'snapshot')  -- of an older format
local mine = 's:' .. string.sub(ARGV[4], 1, 16)
local others = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 's:' and (late or field ~= mine) then
    if late then
      redis.call('HDEL', KEYS[1], field)
    else
      local about = string.sub(redis.call('HGET', KEYS[1], field), 1, 32)
      local last = string.sub(about, 17) == ARGV[2] and '1' or '0'  -- stored by the last commit
      table.insert(others, string.sub(about, 1, 16) .. last .. field)
    end
  end
end
if ARGV[4] ~= '' then
  local about = string.format('%016d', arrived) .. ARGV[3] .. string.format('%016d', kept)
  redis.call('HSET', KEYS[1], mine, about .. ARGV[4])
  table.sort(others)
  for at = 1, #others - 1 do redis.call('HDEL', KEYS[1], string.sub(others[at], 18)) end
end
redis.call('ZADD', KEYS[4], 0, ARGV[1])
if #ARGV > 7 or not redis.call('ZSCORE', KEYS[6], ARGV[1]) then
  redis.call('ZADD', KEYS[6], ARGV[7], ARGV[1])
end
return 1
"""

# ARGV: user, digest, and for users who expire the time before which they must have been written
FORGET = """
if ARGV[3] then
  local written = redis.call('ZSCORE', KEYS[6], ARGV[1])
  if not written or tonumber(written) >= tonumber(ARGV[3]) then return 0 end
end
redis.call('SADD', KEYS[5], ARGV[2])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[6], ARGV[1])
return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
"""

# ARGV: event id, new version, item as JSON or "" to remove the event, time, version read
REPLACE = """
if redis.call('HGET', KEYS[1], 'version') ~= ARGV[5] then return 2 end
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 0 then return 0 end
local all = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for at = 1, #all, 2 do
  if cjson.decode(string.sub(all[at], 17))[2] == ARGV[1] then
    redis.call('ZREM', KEYS[2], all[at])
    if ARGV[3] == '' then
      redis.call('HDEL', KEYS[3], ARGV[1])
    else
      redis.call('ZADD', KEYS[2], ARGV[4], string.sub(all[at], 1, 16) .. ARGV[3])
    end
    break
  end
end
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 's:' or field == 'snapshot' then
    redis.call('HDEL', KEYS[1], field)
  end
end
redis.call('HSET', KEYS[1], 'version', ARGV[2],
  'events', redis.call('ZCARD', KEYS[2]), 'newest', last[2] or '-inf')
local about = redis.call('HMGET', KEYS[1], 'version', 'arrived', 'events', 'newest')
redis.call('HSET', KEYS[1], 'checksum', redis.sha1hex(table.concat(about, ' ')))
return 1
"""
