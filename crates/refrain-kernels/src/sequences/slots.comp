layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push {
    positions_ref positions;
    sequences_ref sequences;
    pages_ref pages;
    out_ref out_;
    uint tokens;
    uint rows, table; // rows and columns of the page table
    uint page_size;
} pc;

void main() {
    uint token = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (token >= pc.tokens) return;
    int position = load_positions(pc.positions, token);
    uint row = load_sequences(pc.sequences, token);
    uint page = uint(max(position, 0)) / pc.page_size;
    int slot = -1;
    if (position >= 0 && row < pc.rows && page < pc.table) {
        slot = int(load_pages(pc.pages, row * pc.table + page) * pc.page_size + uint(position) % pc.page_size);
    }
    store_out(pc.out_, token, slot);
}
