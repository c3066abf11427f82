// What the kernels of gpu/attention_*.cu require of a problem, and their arguments for it. Thread-safe.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/library/attention/attention_problem.h"
#include "kernels/library/gpu/attention_arguments.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels::attention {

using gpu::AttentionArguments;
using gpu::AttentionGradientArguments;

constexpr int64_t kMaxTileDepth = 128;

inline int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

AttentionArguments ArgumentsOf(const AttentionProblem& p);
AttentionGradientArguments GradientArgumentsOf(const AttentionGradientProblem& p);

// Returns true if the kernels that copy tiles of rows, in chunks of 16 bytes, can run the problem.
bool FitsTiles(const AttentionProblem& p);
// Returns true if the kernels on tensor cores can run the problem: forward, or the gradients.
bool FitsTensorCores(const AttentionProblem& p);
bool FitsTensorCores(const AttentionGradientProblem& p);

// Returns true if a tensor map can describe the tensor. For a dimension of size 1 it is given another stride.
bool FitsTensorMap(const HeadTensor& t, int64_t batch, int64_t heads);
gpu::HeadStrides TensorMapStrides(const HeadTensor& t, int64_t batch, int64_t heads);

struct Gpu {
  bool hopper;
  int multiprocessors;
};
// The items of the kernels of teams: of their groups' queries, in all heads.
int64_t TeamItems(const AttentionProblem& p);
// Returns true if teams can attend, and their items keep most multiprocessors busy.
bool SuitsTeams(const AttentionProblem& p, const Gpu& gpu);

// Sets the arguments for `groups` groups that make tensor maps of q, k and v.
template <typename Arguments>
absl::Status MakeMaps(const AttentionProblem& p, int64_t groups, Arguments& arguments, Workspace workspace) {
  ASSIGN_OR_RETURN(arguments.maps, workspace(static_cast<size_t>(groups * Arguments::kTeamMapBytes)));
  arguments.q_strides = TensorMapStrides(p.q, p.batch, p.heads);
  arguments.k_strides = TensorMapStrides(p.k, p.batch, p.KeyHeads());
  arguments.v_strides = TensorMapStrides(p.v, p.batch, p.KeyHeads());
  return absl::OkStatus();
}

}  // namespace xpud::kernels::attention
