// What `top` shows on a terminal, and what keys do to it: which session is selected, how they are sorted,
// what is asked. Knows nothing of terminals or daemons. One thread.
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

  // The samples stay until the next Update; `errors`: lines of hosts that did not answer.
  void Update(std::vector<TopSample> samples, std::string errors);
  // kKill: the selected session is to be closed, as the user confirmed.
  Action Press(const Key& key);
  bool paused() const { return paused_; }
  // The session that is selected; none where there are none.
  std::optional<TopRow> selected() const;
  // Stands below the rest until the next key.
  void Say(std::string message) { message_ = std::move(message); }

  // At most so many lines, each at most so wide.
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
  size_t sort_ = 0;  // of kSorts
  bool paused_ = false, help_ = false, asking_ = false;
  std::string message_, errors_;
  std::vector<TopSample> samples_;
  std::vector<TopRow> sessions_;  // as sorted
  std::optional<Id> chosen_;      // by the user; it may be gone
};

}  // namespace xpud::xpuctl
