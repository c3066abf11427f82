// What is compiled of a loop kernel: one of its bodies, for a class of calls. Equal ones, whoever defined
// them, are one object with one number, which a kernel's key holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/loops/definition.h"

namespace xpud::kernels {

// How lanes share a body's points.
enum class LoopSchedule : uint8_t {
  kPoints,  // a lane takes whole points
  kRows,    // a team takes a point, and its lanes share the reduced positions
  // On the host: a lane takes points that are adjacent along the last outer dimension, and goes through the
  // reduced positions for all of them together.
  kColumns,
  // A lane of the host, or a group of a GPU, takes a tile of the last outer dimension and Class::across.
  kTiles,
};

// Long reductions of few points are cut into parts of a fixed length: what each of them gives goes to the
// workspace, and the second kernel merges these and does the rest.
enum class LoopStage : uint8_t { kWhole, kParts, kMerge };

// Immutable; any thread.
class LoopVariant {
 public:
  // What code depends on beside the body.
  struct Class {
    LoopSchedule schedule = LoopSchedule::kPoints;
    bool warps = false;       // kRows on a GPU: a team is a warp
    bool keeps_rows = false;  // on the host: see LoopPasses
    uint8_t across = 0;
    LoopStage stage = LoopStage::kWhole;
    uint8_t cut = 0;  // kParts: the dimension that is cut
    // On a GPU: a lane takes a block, so many adjacent points along the last outer dimension, or reduced
    // positions along the last one, together.
    uint8_t block = 1;
    // Of each load and store, if block > 1: its elements are an aligned block. Of each load, if kTiles: it is
    // contiguous along `across`, so its tile is turned first, in the scratch or in shared memory.
    std::vector<bool> in_block = {};
    // As in loops::BodyCall.
    std::vector<bool> guarded = {}, is_exact = {}, is_natural = {};

    // Calls the visitor with each number, of a byte, and then with each list of bits.
    static void Visit(auto& of, auto& visit) {
      for (auto* const number : {&of.warps, &of.keeps_rows}) visit.Number(*number);
      visit.Number(of.schedule);
      visit.Number(of.stage);
      for (auto* const number : {&of.across, &of.cut, &of.block}) visit.Number(*number);
      for (auto* const bits : {&of.in_block, &of.guarded, &of.is_exact, &of.is_natural}) visit.Bits(*bits);
    }
  };

  // Returns the one that exists, or makes it. It exists until nobody refers to it.
  static std::shared_ptr<const LoopVariant> Intern(const std::shared_ptr<const loops::Definition>& definition,
                                                   uint32_t body, Class of);
  // REQUIRES: it exists.
  static std::shared_ptr<const LoopVariant> Find(uint64_t number);
  ~LoopVariant();
  LoopVariant(const LoopVariant&) = delete;
  LoopVariant& operator=(const LoopVariant&) = delete;

  uint64_t number() const { return number_; }  // never used again
  // Everything that determines the code: the body's number, the class and the kernel's bytes.
  const std::string& identity() const { return identity_; }
  const std::string& name() const { return name_; }  // a C identifier that follows from the identity
  const loops::Kernel& kernel() const { return definition_->kernel(); }
  const std::string& bytes() const { return definition_->bytes(); }  // of the kernel
  uint32_t body_number() const { return body_; }
  const loops::Body& body() const { return kernel().bodies[body_]; }
  const loops::BodyInfo& info() const { return definition_->info().bodies[body_]; }
  const Class& call() const { return class_; }
  // The number of the body's first statement, counted over all bodies.
  uint32_t first_statement() const { return first_statement_; }
  // Whether it stores an error where something is wrong.
  bool reports() const { return reports_; }
  // Whether the kernel is given the number of elements of a buffer.
  bool checks(uint32_t operand) const { return checks_[operand]; }

 private:
  struct Table;
  static Table& TheTable();

  LoopVariant(std::shared_ptr<const loops::Definition> definition, uint32_t body, Class of,
              std::string identity, uint64_t number);

  const std::shared_ptr<const loops::Definition> definition_;
  const uint32_t body_;
  const Class class_;
  const std::string identity_, name_;
  const uint64_t number_;
  uint32_t first_statement_ = 0;
  bool reports_ = false;
  std::vector<bool> checks_;
};

}  // namespace xpud::kernels
