#include "megalith/Automata/Automaton.h"
#include <gtest/gtest.h>
using namespace megalith::automata;
TEST(Automaton, First) {
  EXPECT_TRUE(compile("a(b|c)*").accepts("abcb"));
  EXPECT_EQ(compile("a|b"), compile("[ab]"));
  EXPECT_EQ(compile(".").states(), 9u);
}
