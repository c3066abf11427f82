#include "kernels/loops/variant.h"

#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"
#include "proto/base/check.h"
#include "proto/base/mutex.h"

namespace xpud::kernels {

// Of this process. Its entries are weak; a variant removes its own when it ends, unless a new one has taken
// its place.
struct LoopVariant::Table {
  Mutex mutex;
  absl::flat_hash_map<std::string, std::weak_ptr<const LoopVariant>> by_identity ABSL_GUARDED_BY(mutex);
  absl::flat_hash_map<uint64_t, std::weak_ptr<const LoopVariant>> by_number ABSL_GUARDED_BY(mutex);
  uint64_t last_number ABSL_GUARDED_BY(mutex) = 0;
};

namespace {

// A number takes a byte; a list is so many characters, and a space.
struct Writer {
  void Number(auto number) { bytes += static_cast<char>(number); }
  void Bits(const std::vector<bool>& bits) {
    for (const bool bit : bits) bytes += bit ? '1' : '0';
    bytes += ' ';
  }
  std::string bytes;
};

std::string NameFrom(const std::string& identity) {
  const auto hash =
      llvm::SHA256::hash(llvm::ArrayRef(reinterpret_cast<const uint8_t*>(identity.data()), identity.size()));
  return "loop_" + llvm::toHex(llvm::ArrayRef(hash.data(), 8), /*LowerCase=*/true);
}

bool MayReport(const loops::Statement& s, bool guarded) {
  return guarded || s.kind == loops::StatementKind::kIndirect || s.kind == loops::StatementKind::kAssert;
}

}  // namespace

LoopVariant::Table& LoopVariant::TheTable() {
  static Table* const table = new Table;  // variants may end later than any static object
  return *table;
}

LoopVariant::LoopVariant(std::shared_ptr<const loops::Definition> definition, uint32_t body, Class of,
                         std::string identity, uint64_t number)
    : definition_(std::move(definition)),
      body_(body),
      class_(std::move(of)),
      identity_(std::move(identity)),
      name_(NameFrom(identity_)),
      number_(number),
      checks_(kernel().operands.size()) {
  for (uint32_t b = 0; b < body_; ++b)
    first_statement_ += static_cast<uint32_t>(kernel().bodies[b].statements.size());
  const std::vector<loops::Statement>& statements = this->body().statements;
  for (size_t i = 0; i < statements.size(); ++i) {
    reports_ |= MayReport(statements[i], class_.guarded[i]);
    if (class_.guarded[i]) checks_[statements[i].operand] = true;
  }
}

LoopVariant::~LoopVariant() {
  Table& table = TheTable();
  MutexLock lock(table.mutex);
  table.by_number.erase(number_);
  const auto found = table.by_identity.find(identity_);
  if (found != table.by_identity.end() && found->second.expired()) table.by_identity.erase(found);
}

std::shared_ptr<const LoopVariant> LoopVariant::Intern(
    const std::shared_ptr<const loops::Definition>& definition, uint32_t body, Class of) {
  Writer writer;
  writer.Number(body);
  Class::Visit(of, writer);
  std::string identity = writer.bytes + definition->bytes();
  Table& table = TheTable();
  MutexLock lock(table.mutex);
  std::weak_ptr<const LoopVariant>& known = table.by_identity[identity];
  if (std::shared_ptr<const LoopVariant> variant = known.lock(); variant != nullptr) return variant;
  const uint64_t number = ++table.last_number;
  std::shared_ptr<const LoopVariant> made(
      new LoopVariant(definition, body, std::move(of), std::move(identity), number));
  known = made;
  table.by_number[number] = made;
  return made;
}

std::shared_ptr<const LoopVariant> LoopVariant::Find(uint64_t number) {
  Table& table = TheTable();
  MutexLock lock(table.mutex);
  const auto found = table.by_number.find(number);
  XPUD_CHECK(found != table.by_number.end());
  std::shared_ptr<const LoopVariant> variant = found->second.lock();
  XPUD_CHECK(variant != nullptr);
  return variant;
}

}  // namespace xpud::kernels
