// What is made of the table of commands for shells and for man(1). Pure functions.
#pragma once

#include <string>

namespace xpud::xpuctl {

std::string BashCompletion();
std::string ZshCompletion();
std::string FishCompletion();

// The manual page, as roff.
std::string ManualPage();

}  // namespace xpud::xpuctl
