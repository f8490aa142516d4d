// The value that every kernel writes for a pin (d, k), in this order of precedence:
//
//   1. The free maximiser satisfies it: the free maximum, exactly, whether the pin was wanted or not.
//   2. It is not wanted (a mask was given, and leaves it out): `not_wanted`, even where a label is given at d.
//   3. A label other than k is given at d, or d cannot have k besides the given labels: `impossible`.
//   4. Otherwise max { f(y) : y_d = k }, with the given labels kept. It is never more than the free maximum.
//
// A kernel does no work for pins of the first two kinds that it does not need for others, and keeps no maximisers
// for the second.
#pragma once

#include <limits>

namespace perturbmap {

constexpr double not_wanted = std::numeric_limits<double>::quiet_NaN();
constexpr double impossible = -std::numeric_limits<double>::infinity();

}  // namespace perturbmap
