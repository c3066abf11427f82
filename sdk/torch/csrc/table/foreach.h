// _foreach_ operators of rows of the op table.
#pragma once

#include "sdk/torch/csrc/call/variants.h"

namespace xpud::shim {

// Registers the _foreach_ operators whose scalar form is a row of the table.
void RegisterForeach(const VariantIndex& index);

}  // namespace xpud::shim
