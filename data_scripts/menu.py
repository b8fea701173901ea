"""The 101 dishes of the toy data: a name, and a few words that say how the dish looks. `plates` draws them.

The names are those of Food-101, so that a lesson written for the toy data runs on the real one. The words are our own:
the shape of the food, its colour, the colour on top of it, its texture, and what garnishes it. `a/b` leaves the choice
between two colours to each picture. Colours repeat across shapes on purpose: the mean colour of a picture must not
give its class away.
"""

from __future__ import annotations

from dataclasses import dataclass

COLOURS = {  # name -> (red, green, blue)
    "amber": (222, 158, 48),
    "apricot": (240, 178, 112),
    "basil": (66, 128, 52),
    "beet": (138, 30, 72),
    "berry": (166, 34, 66),
    "black": (38, 34, 40),
    "bread": (214, 166, 100),
    "broth": (184, 122, 54),
    "brick": (172, 66, 42),
    "caramel": (190, 116, 48),
    "carrot": (236, 128, 42),
    "cheese": (246, 200, 84),
    "chocolate": (84, 50, 34),
    "cocoa": (116, 76, 54),
    "cream": (250, 238, 212),
    "crust": (206, 148, 78),
    "egg": (252, 190, 40),
    "grape": (96, 58, 110),
    "ham": (238, 158, 148),
    "ivory": (240, 226, 190),
    "leaf": (104, 160, 62),
    "lime": (162, 190, 66),
    "mint": (160, 214, 176),
    "moss": (92, 108, 44),
    "pasta": (238, 206, 124),
    "peach": (248, 190, 150),
    "pink": (240, 136, 168),
    "rare": (176, 72, 72),
    "roast": (136, 80, 44),
    "rose": (226, 108, 104),
    "rust": (196, 92, 36),
    "salmon": (242, 132, 96),
    "seared": (98, 60, 42),
    "shell": (64, 66, 86),
    "slate": (96, 102, 112),
    "tomato": (208, 52, 36),
    "vanilla": (252, 228, 164),
    "white": (248, 246, 240),
}


@dataclass(frozen=True)
class Dish:
    """One class of the toy data."""

    name: str
    shape: str  # a key of food_shapes.SHAPES
    body: tuple[str, ...]  # names in COLOURS; each picture chooses one
    top: tuple[str, ...]
    texture: str  # a key of food_shapes.TEXTURES
    garnish: str  # a key of food_shapes.GARNISHES

    @property
    def label(self) -> str:
        """The name as Food-101's labels.txt writes it: ``Apple pie``."""
        return self.name.replace("_", " ").capitalize()


# The first eight are the classroom: four browns of different shape, three reds and yellows, and one that varies.
_MENU = """
apple_pie                wedge      crust           amber/apricot       lattice   none
donuts                   rings      crust/caramel   pink/chocolate/vanilla  dots  sprinkles
greek_salad              leaves     leaf/lime       tomato/white        dots      olives
pancakes                 stack      crust/bread     caramel/bread       pores     butter
pizza                    round      crust/bread     cheese/tomato       slices    basil
spaghetti_bolognese      noodles    pasta/cheese    brick/rust          grains    basil
sushi                    rolls      black/white     salmon/leaf/egg     grains    none
waffles                  squares    crust/amber     caramel/crust       grid      berries
baby_back_ribs           slab       brick           seared              ribs      none
baklava                  triangles  amber           caramel             layers    crumbs
beef_carpaccio           petals     rare            rose                plain     herbs
beef_tartare             mound      rare            berry               dots      yolk
beet_salad               leaves     beet            leaf                plain     crumbs
beignets                 balls      caramel         white               pores     none
bibimbap                 bowl       ivory           carrot/leaf         pieces    yolk
bread_pudding            squares    bread           caramel             pores     cream
breakfast_burrito        logs       ivory           egg                 sear      herbs
bruschetta               slab       bread           tomato              dots      basil
caesar_salad             leaves     lime            ivory               plain     crumbs
cannoli                  logs       caramel         cream               pores     sprinkles
caprese_salad            petals     tomato          white               plain     basil
carrot_cake              cake       rust            cream               layers    none
ceviche                  bowl       cream           ham/lime            pieces    lemon
cheesecake               wedge      vanilla         ivory               plain     berries
cheese_plate             triangles  cheese          ivory               pores     olives
chicken_curry            bowl       amber           rust                pieces    herbs
chicken_quesadilla       triangles  bread           cheese              sear      herbs
chicken_wings            drums      rust            brick               dots      none
chocolate_cake           cake       chocolate       cocoa               layers    berries
chocolate_mousse         cup        chocolate       cocoa               swirl     cream
churros                  logs       crust           caramel             ridges    crumbs
clam_chowder             bowl       cream           ivory               dots      herbs
club_sandwich            sandwich   bread           leaf                layers    none
crab_cakes               balls      amber           crust               dots      lemon
creme_brulee             cup        caramel         amber               dots      none
croque_madame            squares    bread           white               plain     yolk
cup_cakes                cup        cocoa           pink/mint/vanilla   swirl     sprinkles
deviled_eggs             ovals      white           egg                 dots      herbs
dumplings                moons      ivory           cream               ridges    sauce
edamame                  pods       leaf            lime                plain     none
eggs_benedict            round      white           egg                 plain     herbs
escargots                shells     cocoa           basil               swirl     herbs
falafel                  balls      roast           moss                dots      lemon
filet_mignon             lump       seared          rare                sear      herbs
fish_and_chips           sticks     amber           crust               plain     lemon
foie_gras                slab       apricot         caramel             plain     berries
french_fries             sticks     cheese          amber               plain     none
french_onion_soup        bowl       broth           cheese              pores     none
french_toast             squares    amber           caramel             pores     butter
fried_calamari           rings      amber           crust               plain     lemon
fried_rice               mound      pasta           carrot/leaf         grains    herbs
frozen_yogurt            cup        white           pink                swirl     berries
garlic_bread             slab       bread           amber               ridges    herbs
gnocchi                  pods       pasta           ivory               ridges    basil
grilled_cheese_sandwich  triangles  caramel         cheese              sear      none
grilled_salmon           slab       salmon          rust                sear      lemon
guacamole                bowl       lime            leaf                dots      none
gyoza                    moons      bread           caramel             sear      sauce
hamburger                sandwich   crust           seared              dots      sesame
hot_and_sour_soup        bowl       brick           broth               strips    herbs
hot_dog                  logs       bread           brick               filling   sauce
huevos_rancheros         round      tomato          white               dots      yolk
hummus                   bowl       bread           vanilla             swirl     herbs
ice_cream                scoops     pink/mint       vanilla/chocolate   pores     none
lasagna                  squares    tomato          cheese              layers    basil
lobster_bisque           bowl       salmon          rust                plain     cream
lobster_roll_sandwich    logs       bread           rose                filling   herbs
macaroni_and_cheese      pods       cheese          egg                 plain     crumbs
macarons                 sideways   pink/mint/vanilla  cream            layers    none
miso_soup                bowl       broth           white               pieces    herbs
mussels                  shells     shell           apricot             plain     lemon
nachos                   triangles  amber           cheese              dots      olives
omelette                 moons      egg             vanilla             plain     herbs
onion_rings              rings      amber           crust               dots      none
oysters                  shells     slate           ivory               plain     lemon
pad_thai                 noodles    apricot         rust                plain     lemon
paella                   mound      amber           tomato              grains    lemon
panna_cotta              scoops     cream           berry               plain     berries
peking_duck              petals     rust            brick               sear      herbs
pho                      bowl       broth           pasta               strips    basil
pork_chop                lump       peach           roast               sear      none
poutine                  sticks     caramel         white               dots      sauce
prime_rib                lump       rare            roast               plain     none
pulled_pork_sandwich     sandwich   bread           brick               strips    none
ramen                    bowl       caramel         pasta               strips    yolk
ravioli                  squares    pasta           vanilla             pillow    basil
red_velvet_cake          cake       berry           white               layers    none
risotto                  mound      ivory           vanilla             grains    crumbs
samosa                   triangles  caramel         amber               plain     herbs
sashimi                  petals     salmon          white               ridges    none
scallops                 balls      ivory           caramel             sear      herbs
seaweed_salad            noodles    basil           moss                plain     sesame
shrimp_and_grits         moons      salmon          ivory               ridges    herbs
spaghetti_carbonara      noodles    vanilla         ham                 dots      none
spring_rolls             logs       amber           leaf                plain     basil
steak                    lump       roast           seared              ribs      butter
strawberry_shortcake     cake       vanilla         white               layers    berries
tacos                    moons      cheese          leaf                filling   none
takoyaki                 balls      caramel         seared              swirl     sesame
tiramisu                 squares    cocoa           cream               layers    crumbs
tuna_tartare             scoops     rose            berry               dots      sesame
"""


def _dish(line: str) -> Dish:
    name, shape, body, top, texture, garnish = line.split()
    return Dish(name, shape, tuple(body.split("/")), tuple(top.split("/")), texture, garnish)


MENU: tuple[Dish, ...] = tuple(_dish(line) for line in _MENU.strip().splitlines())
