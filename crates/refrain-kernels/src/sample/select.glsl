// Radix selection among ranks in the workspace, by histograms of eight bits at a time, highest digits first.

// Ranks in the workspace that are at min_rank `min_rank` and have a weight of at min_rank `min_weight`.
struct Entries {
    uint first, count;
    bool blocks;      // whether each entry stands for a block and its mass
    uint lowest;      // lower bound of all keys
    uvec2 min_rank;
    float min_weight;
};

// The goal of a selection: the first entry at which the running count of entries, or the sum of their masses, reaches
// an amount.
struct Goal {
    bool by_mass;
    uint kind;
    uint numerator;
    uvec2 amount;
};
const uint AMOUNT = 0u; // `amount`
const uint SHARE = 1u;  // `numerator` / 2^24 of the larger of the total and `amount`
const uint BEYOND = 2u; // more than `numerator` / 2^24 of the total

// Of the sequence: offsets of its ranks and block masses, its largest key, its temperature.
uint ranks_at, masses_at;
uint largest_key;
float inverse_temperature;

shared uint bin_entries[256];
shared uint bin_low[256];
shared uint bin_high[256];
shared uvec2 sixteenths[16];

uvec2 rank_at(uint place) { return push.ranks.at[ranks_at + place]; }

bool is_among(Entries entries, uvec2 rank) {
    if (is_above(entries.min_rank, rank)) return false;
    return entries.min_weight <= 0.0
        || weight_of(rank.x, largest_key, inverse_temperature) >= entries.min_weight;
}

uvec2 mass_of_entry(Entries entries, uint number, uvec2 rank) {
    float weight = weight_of(rank.x, largest_key, inverse_temperature);
    if (entries.blocks) weight *= load_masses(push.masses, masses_at + number);
    return mass_of(weight);
}

// Entries of an invocation whose loads are issued together, so that it stalls once for all of them.
const uint LOADS_EACH = 4u;

// Fills the histogram over `bits` bits of rank word `word` from `shift` on, of entries that equal `prefix` under
// `mask`.
void fill_bins(Entries entries, bool by_mass, uvec2 prefix, uvec2 mask, uint word, uint shift, uint bits) {
    uint me = gl_LocalInvocationIndex;
    for (uint i = me; i < 256u; i += WIDTH) {
        bin_entries[i] = 0u;
        bin_low[i] = 0u;
        bin_high[i] = 0u;
    }
    barrier();
    for (uint first = me; first < entries.count; first += LOADS_EACH * WIDTH) {
        uvec2 ranks[LOADS_EACH];
        [[unroll]] for (uint k = 0u; k < LOADS_EACH; ++k) {
            ranks[k] = rank_at(entries.first + min(first + k * WIDTH, entries.count - 1u));
        }
        [[unroll]] for (uint k = 0u; k < LOADS_EACH; ++k) {
            uint number = first + k * WIDTH;
            bool counts = number < entries.count && (ranks[k] & mask) == prefix && is_among(entries, ranks[k]);
            if (!counts) continue;
            uint bin = ((word == 0u ? ranks[k].x : ranks[k].y) >> shift) & ((1u << bits) - 1u);
            uvec2 amount = by_mass ? mass_of_entry(entries, number, ranks[k]) : uvec2(1u, 0u);
            atomicAdd(bin_entries[bin], 1u);
            uint before = atomicAdd(bin_low[bin], amount.x);
            uint high = amount.y + uint(before + amount.x < before);
            if (high > 0u) atomicAdd(bin_high[bin], high);
        }
    }
    barrier();
    for (uint i = me; i < 16u; i += WIDTH) {
        uvec2 sum = uvec2(0u);
        for (uint j = 0u; j < 16u; ++j) sum = add_mass(sum, uvec2(bin_low[16u * i + j], bin_high[16u * i + j]));
        sixteenths[i] = sum;
    }
    barrier();
}

uvec2 total_of_bins() {
    uvec2 total = sixteenths[0];
    for (uint i = 1u; i < 16u; ++i) total = add_mass(total, sixteenths[i]);
    return total;
}

uvec2 amount_of(Goal goal, uvec2 total) {
    uvec2 amount = goal.amount;
    if (goal.kind == SHARE) amount = share_of(max_mass(total, goal.amount), goal.numerator);
    if (goal.kind == BEYOND) amount = add_mass(share_of(total, goal.numerator), uvec2(1u, 0u));
    return min_mass(max_mass(amount, uvec2(1u, 0u)), total);
}

// Returns the bin, counted from the highest down, in which `rest` is reached; subtracts the bins above from `rest`.
uint bin_that_reaches(inout uvec2 rest) {
    uint sixteenth = 15u;
    for (; sixteenth > 0u && is_less(sixteenths[sixteenth], rest); --sixteenth) {
        rest = subtract_mass(rest, sixteenths[sixteenth]);
    }
    uint bin = 16u * sixteenth + 15u;
    for (; bin > 0u && is_less(uvec2(bin_low[bin], bin_high[bin]), rest); --bin) {
        rest = subtract_mass(rest, uvec2(bin_low[bin], bin_high[bin]));
    }
    return bin;
}

uint lower_bits(int bits) { return bits >= 32 ? 0xffffffffu : (1u << bits) - 1u; }

// Returns a rank that exactly the entries up to the goal reach. By id, only the rank's second word counts, and it is
// that of the goal's entry. `rest` is the part of the goal that remained for the last bin.
uvec2 select(Entries entries, bool by_id, Goal goal, out uvec2 rest) {
    // Numbers of low bits in which ranks may differ.
    int widths[2] = int[2](by_id ? 0 : findMSB(largest_key ^ entries.lowest) + 1, findMSB(push.vocabulary - 1u) + 1);
    uvec2 mask = by_id ? uvec2(0u, ~lower_bits(widths[1])) : ~uvec2(lower_bits(widths[0]), lower_bits(widths[1]));
    uvec2 prefix = uvec2(largest_key, 0xffffffffu) & mask;
    bool first = true;
    rest = uvec2(0u);
    for (uint word = 0u; word < 2u; ++word) {
        for (int left = widths[word]; left > 0;) {
            int bits = min(left, 8);
            left -= bits;
            fill_bins(entries, goal.by_mass, prefix, mask, word, uint(left), uint(bits));
            if (first) rest = amount_of(goal, total_of_bins());
            first = false;
            uint bin = bin_that_reaches(rest);
            // Further bits need not split the bin.
            bool found = !by_id && (bin_entries[bin] == 1u || rest == uvec2(bin_low[bin], bin_high[bin]));
            uvec2 unit = word == 0u ? uvec2(1u, 0u) : uvec2(0u, 1u);
            prefix |= unit * (bin << left);
            mask |= unit * (lower_bits(bits) << left);
            barrier();
            if (found) return prefix;
        }
    }
    return prefix;
}
