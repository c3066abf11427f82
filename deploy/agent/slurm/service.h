// The service of slurm.proto, which a connection of root or of the agent's own user has beside Grants.
#pragma once

#include "deploy/agent/grants/door.h"
#include "deploy/agent/slurm/slurm.h"

namespace xpud::agent::slurm {

// For Door::Open. `engine` outlives the door.
Door::MakeService ServiceOf(Slurm& engine);

}  // namespace xpud::agent::slurm
