// The profiles of a lane's sessions: whether there is room for one, which sessions have one, that the device
// traces its work meanwhile, and how its memory changes while operators' profiles run. Owned by Lane, which
// tells it of its sessions. REQUIRES: the lane's thread, unless a function says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/executor/api/background.h"
#include "daemon/executor/api/device.h"
#include "daemon/memory/usage.h"
#include "daemon/records/memory_history.h"
#include "daemon/records/profiles.h"
#include "daemon/records/recorder.h"
#include "daemon/session/device_session.h"

namespace xpud::lane {

class ProfileDesk {
 public:
  // `device` outlives the last call. `wake` is called on any thread when Poll has something to do. `usage`:
  // the device's memory now; called on the lane's thread.
  ProfileDesk(executor::Device& device, std::function<void()> wake,
              std::function<memory::DeviceMemory()> usage);

  // A session has opened the device. Profiles it if that was asked for.
  void Add(session::DeviceSession& session);
  // The session is being closed, and still has its recorder.
  void Remove(session::DeviceSession& session);

  // Profiles the selected sessions, those that open the device later included. Returns how many there are, or
  // ResourceExhausted if the audience's profiles would keep too many commands.
  absl::StatusOr<size_t> Start(const records::Profiles::Wish& wish);
  size_t Stop(records::Audience audience, const records::Selection& selection);
  // A client's own profile, of at most `capacity` commands. Errors as for Start.
  absl::Status StartForClient(uint64_t session, size_t capacity);
  void StopForClient(uint64_t session);
  // Runs use(profile) on the desk's thread, with null if there is none. The profile is freed there.
  void TakeForClient(uint64_t session, std::function<void(const records::Profile*)> use);
  // Frees it on the desk's thread. May be null.
  void Drop(std::unique_ptr<records::Profile> profile);
  // Runs `work` on the desk's thread, which may take its time.
  void RunAside(std::function<void()> work);

  // Call after profiles were started or stopped. Has the device trace its work if a session is profiled.
  // Calls `then`, here or later on the lane's thread, when it does, and profiles have the times of all work
  // that had ended before. A device that is slow to answer is waited for half a second.
  void Settle(std::function<void()> then);
  // Whether Settle has still to call something.
  bool is_settling() const { return !settling_.empty(); }
  // Call often.
  void Poll();
  // Whether SampleMemory has something to do: operators profile a session, or did until now.
  bool samples_memory() const { return samples_memory_; }
  // Call often while samples_memory(). Samples the device's memory, at most every 10 ms, and in a hundredth
  // of the time. It has been as it is since `since_ns`. `closing`: sessions that have ended still have
  // memory.
  void SampleMemory(uint64_t since_ns, bool closing);
  // Begins anew when operators profile sessions and none of theirs was profiled.
  const records::MemoryHistory& memory() const { return memory_; }

  // No session is left: calls what Settle has still to call.
  void FinishSettling();
  // Ends the desk's thread; nothing more is run there. Any thread, after the lane's has ended.
  void EndThread() { aside_.reset(); }

 private:
  struct Settling {
    uint32_t ticket;  // of Device::Trace
    uint64_t until_ns;
    std::function<void()> then;
  };

  session::DeviceSession* Find(uint64_t session) const;
  bool IsProfiled() const;
  bool IsProfiledByOperators() const;
  // How many commands the audience's profiles may come to keep, those of the selected sessions left out.
  uint64_t CountedCommands(records::Audience audience, const records::Selection& besides) const;
  absl::Status Admit(const records::Profiles::Wish& wish) const;
  size_t ForSelected(const records::Selection& selection,
                     absl::FunctionRef<void(records::Recorder&)> visit) const;

  executor::Device& device_;
  std::vector<session::DeviceSession*> sessions_;
  records::Profiles wishes_;
  bool traces_ = false;  // the device was asked for times
  std::vector<Settling> settling_;
  const std::function<memory::DeviceMemory()> usage_;
  records::MemoryHistory memory_;
  bool samples_memory_ = false;
  uint64_t sample_due_ns_ = 0;
  std::optional<executor::Background> aside_;  // the desk's thread: formats and frees profiles
};

}  // namespace xpud::lane
