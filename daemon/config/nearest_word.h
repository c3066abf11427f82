// Finds what a misspelt word was meant to be. Pure function.
#pragma once

#include <span>
#include <string_view>

namespace xpud::config {

// Returns the word that differs from `word` in the fewest letters, at most a third of them or two; empty if
// none does.
std::string_view NearestWord(std::string_view word, std::span<const std::string_view> words);

}  // namespace xpud::config
