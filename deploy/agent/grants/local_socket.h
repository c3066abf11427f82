// What the agent and its clients at the local socket agree on beside the messages of grants.proto. Constants.
#pragma once

namespace xpud::agent {

// Where the agent listens unless agent.yaml says otherwise.
inline constexpr char kLocalSocket[] = "/run/xpud-agent/agent.sock";

// Trailing metadata of a refusal that stays the same whatever other grants there are: to wait does not help.
inline constexpr char kRefusalKey[] = "xpud-refusal", kFinalRefusal[] = "final";

}  // namespace xpud::agent
