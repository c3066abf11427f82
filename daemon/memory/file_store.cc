#include "daemon/memory/file_store.h"

#include <utility>

#include "proto/base/check.h"

namespace xpud::memory {
namespace {

constexpr size_t kThreads = 4;  // parts under way at once

// Of all parts together.
struct Job {
  std::vector<absl::Status> results;  // each is written by the thread that copies the part
  size_t left = 0;
  FileStore::Done done;
};

absl::Status FirstError(const std::vector<absl::Status>& results) {
  for (const absl::Status& result : results)
    if (!result.ok()) return result;
  return absl::OkStatus();
}

std::span<std::byte> BytesOf(const executor::HostPart& part) {
  return {part.memory->address() + part.offset, part.bytes};
}

}  // namespace

FileStore::FileStore(Space space, uint64_t slot_bytes, const std::function<void()>& wake)
    : space_(std::move(space)),
      slot_bytes_(slot_bytes),
      limit_(space_.file == nullptr ? 0 : space_.bytes / slot_bytes * slot_bytes) {
  for (uint64_t at = limit_; at != 0; at -= slot_bytes) free_.push_back(space_.offset + at - slot_bytes);
  for (size_t i = 0; limit_ != 0 && i < kThreads; ++i)
    threads_.push_back(std::make_unique<executor::Background>(wake, "xpud-file"));
}

std::optional<FileSlots> FileStore::Take(size_t count) {
  if (free_.size() < count) return std::nullopt;
  FileSlots slots(free_.rbegin(), free_.rbegin() + static_cast<ptrdiff_t>(count));
  free_.resize(free_.size() - count);
  return slots;
}

void FileStore::Return(FileSlots slots) { free_.insert(free_.end(), slots.begin(), slots.end()); }

void FileStore::Write(const executor::HostParts& from, const FileSlots& to, Done done) {
  constexpr CopyPart kWrite = [](const MovedOutFile& file, const executor::HostPart& part, uint64_t offset) {
    return file.Write(BytesOf(part), offset);
  };
  Copy(from, to, kWrite, std::move(done));
}

void FileStore::Read(const FileSlots& from, const executor::HostParts& to, Done done) {
  constexpr CopyPart kRead = [](const MovedOutFile& file, const executor::HostPart& part, uint64_t offset) {
    return file.Read(BytesOf(part), offset);
  };
  Copy(to, from, kRead, std::move(done));
}

void FileStore::Copy(const executor::HostParts& parts, const FileSlots& slots, CopyPart copy, Done done) {
  XPUD_CHECK(!parts.empty() && parts.size() == slots.size());
  const auto job =
      std::make_shared<Job>(Job{std::vector<absl::Status>(parts.size()), parts.size(), std::move(done)});
  ++copying_;
  for (size_t i = 0; i < parts.size(); ++i) {
    auto copy_part = [job, i, copy, file = space_.file, part = parts[i], offset = slots[i]] {
      job->results[i] = copy(*file, part, offset);
    };
    threads_[next_++ % threads_.size()]->Run(std::move(copy_part), [this, job] {
      if (--job->left != 0) return;
      --copying_;
      job->done(FirstError(job->results));
    });
  }
}

void FileStore::Poll() {
  for (const auto& thread : threads_) thread->FinishDone();
}

}  // namespace xpud::memory
