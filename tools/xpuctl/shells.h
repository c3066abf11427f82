// Texts for shells and man(1), generated from the table of commands. Pure functions.
#pragma once

#include <string>

namespace xpud::xpuctl {

std::string BashCompletion();
std::string ZshCompletion();
std::string FishCompletion();

// The manual page, as roff.
std::string ManualPage();

}  // namespace xpud::xpuctl
