// The state of `top` on a terminal: the selected session, the sort order, an open question, and how keys
// change them. Independent of terminals and daemons. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/xpuctl/keys.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {

class TopScreen {
 public:
  enum class Action { kNone, kQuit, kKill };

  explicit TopScreen(bool wide) : wide_(wide) {}

  // The samples must live until the next Update. `errors` are lines about hosts that did not answer.
  void Update(std::vector<TopSample> samples, std::string errors);
  // Returns kKill if the user has confirmed that the selected session is to be closed.
  Action Press(const Key& key);
  bool paused() const { return paused_; }
  // The selected session; nullopt if there are none.
  std::optional<TopRow> selected() const;
  // Shows a message at the bottom until the next key.
  void Say(std::string message) { message_ = std::move(message); }

  // Returns at most `rows` lines of at most `columns` characters.
  std::vector<std::string> Draw(size_t rows, size_t columns) const;

 private:
  using Id = std::pair<std::string, uint64_t>;  // host, session
  static Id IdOf(const TopRow& row) { return {row.host, row.rates->session->id()}; }
  void Sort();
  void Move(int by);
  bool Confirm(const Key& key);
  size_t SelectedIndex() const;
  std::string Prompt() const;
  std::vector<std::string> SessionLines(size_t most, size_t columns) const;

  bool wide_;
  size_t sort_ = 0;  // index in kSorts
  bool paused_ = false, help_ = false, asking_ = false;
  std::string message_, errors_;
  std::vector<TopSample> samples_;
  std::vector<TopRow> sessions_;  // in display order
  std::optional<Id> chosen_;      // chosen by the user; may no longer exist
};

}  // namespace xpud::xpuctl
